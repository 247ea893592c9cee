"""The contents of a catalog as tables for the terminal and as JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from endive.cli.catalog.times import iso, span
from endive.cli.console import output
from endive.wording import counted

GAP = "  "
"""Between two columns."""
SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def print_json(value: object) -> None:
    """Print a document."""
    output.print_json(json.dumps(value, default=str))


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> None:
    """Print a table; the columns named in `numbers` to the right. Cells are folded if it is wider than the terminal."""
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headings, *cells, strict=True)]
    if sum(widths) + len(GAP) * len(widths) <= output.width:
        output.print(Text(_aligned(headings, headings, widths, numbers), "bold"), soft_wrap=True)
        if cells:  # at once: a table of thousands of rows would take Rich half a minute
            output.out("\n".join(_aligned(row, headings, widths, numbers) for row in cells), highlight=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(output.escape, row))
    output.print(table)


def _aligned(row: Sequence[str], headings: Sequence[str], widths: Sequence[int], numbers: Sequence[str]) -> str:
    """Return a row of cells as one line."""
    padding = [" " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)]
    cells = [
        f"{space}{text}" if heading in numbers else f"{text}{space}"
        for text, space, heading in zip(row, padding, headings, strict=True)
    ]
    return GAP.join(cells).rstrip()


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one a line."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(output.escape(name), output.escape(cell(value)))
    output.print(table)


def say(message: str) -> None:
    """Print a line of text, as it is."""
    output.print(output.escape(message), soft_wrap=True)


def cell(value: object) -> str:
    """Return a value for people: nothing is a dash, numbers have separators."""
    if value is None or value == "":
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def kept(ref: SnapshotRef) -> str:
    """Return how long `expire` leaves a branch or tag alone, and the snapshots of a branch."""
    parts = ["for ever" if ref.max_ref_age_ms is None else span(ref.max_ref_age_ms)]
    if ref.max_snapshot_age_ms is not None:
        parts.append(f"snapshots {span(ref.max_snapshot_age_ms)}")
    if ref.min_snapshots_to_keep is not None:
        parts.append(f"at least {counted(ref.min_snapshots_to_keep, 'snapshot')}")
    return ", ".join(parts)


def size(size_bytes: int | None) -> str | None:
    """Return a size for people."""
    if size_bytes is None:
        return None
    value, unit = float(size_bytes), SIZES[0]
    for unit in SIZES:
        if value < 1000 or unit == SIZES[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"


def count(snapshot: Snapshot | None, name: str) -> int | None:
    """Return a count of a snapshot's summary; None if it has none."""
    summary = snapshot.summary if snapshot is not None else None
    text = summary.additional_properties.get(name) if summary is not None else None
    return int(text) if text is not None and text.isdigit() else None


def operation(snapshot: Snapshot) -> str | None:
    """Return a snapshot's changes in words."""
    return snapshot.summary.operation.value if snapshot.summary is not None else None


def refs_at(metadata: TableMetadata, snapshot_id: int) -> list[str]:
    """Return the branches and tags that point to a snapshot."""
    return sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot_id)


def snapshot_document(metadata: TableMetadata, snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot for machines."""
    return {
        "snapshot_id": snapshot.snapshot_id,
        "parent_snapshot_id": snapshot.parent_snapshot_id,
        "timestamp_ms": snapshot.timestamp_ms,
        "timestamp": iso(snapshot.timestamp_ms),
        "sequence_number": snapshot.sequence_number,
        "schema_id": snapshot.schema_id,
        "operation": operation(snapshot),
        "summary": snapshot.summary.additional_properties if snapshot.summary is not None else {},
        "manifest_list": snapshot.manifest_list,
        "refs": refs_at(metadata, snapshot.snapshot_id),
    }


def partition_text(spec: PartitionSpec, schema: Schema) -> str:
    """Return a partition spec as `--partition` takes it."""
    texts = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or f"field {field.source_id}"
        name, _, rest = str(field.transform).partition("[")
        arguments = f"{rest.rstrip(']')}, {column}" if rest else column
        texts.append(column if name == "identity" else f"{name}({arguments})")
    return ", ".join(texts)


def partition_values(spec: PartitionSpec, schema: Schema, values: Record) -> dict[str, str]:
    """Return a file's partition by field name, as people write its values."""
    kinds = spec.partition_type(schema).fields
    return {
        field.name: field.transform.to_human_string(kind.field_type, values[place])
        for place, (field, kind) in enumerate(zip(spec.fields, kinds, strict=True))
    }


def relative(path: str, location: str) -> str:
    """Return a path as it is below the table's location; whole if it is elsewhere."""
    return path.removeprefix(location.rstrip("/") + "/")
