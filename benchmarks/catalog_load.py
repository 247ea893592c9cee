"""Writers in threads that commit through PyIceberg for a while, each as fast as it is answered, and what came of it."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from threading import Thread

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "writer", StringType(), required=False),
)
ROWS = 10
METADATA, APPEND = "metadata-only", "append"


def commit(table: Table, work: str, writer: int, number: int) -> None:
    """Make one commit: a property set, or ten rows appended."""
    if work == METADATA:
        with table.transaction() as transaction:
            transaction.set_properties({f"writer-{writer}": str(number)})
    else:
        first = (writer * 1_000_000 + number) * ROWS
        ids = pa.array(range(first, first + ROWS), pa.int64())
        table.append(pa.table({"id": ids, "writer": pa.array([str(writer)] * ROWS)}))


@dataclass
class Writer:
    """What one writer has seen."""

    acknowledged: list[int] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def write(load: Callable[[], Table], work: str, writer: int, found: Writer, deadline_s: float) -> None:
    """Commit until the deadline. A commit that fails is not repeated: its table is loaded again for the next one."""
    table, number = load(), 0
    while time.perf_counter() < deadline_s:
        number += 1
        start_s = time.perf_counter()
        try:
            commit(table, work, writer, number)
        except Exception as error:  # noqa: BLE001 - whatever a catalog raises is a commit that failed
            found.errors[type(error).__name__] += 1
            table = _loaded(load, found)
            continue
        end_s = time.perf_counter()
        found.acknowledged.append(number)
        if end_s < deadline_s:
            found.latencies_ms.append((end_s - start_s) * 1000)


def _loaded(load: Callable[[], Table], found: Writer) -> Table:
    while True:
        try:
            return load()
        except Exception as error:  # noqa: BLE001 - SQLite may be locked
            found.errors[f"load: {type(error).__name__}"] += 1


def run(catalog: Catalog, work: str, names: Sequence[str], seconds: float) -> dict[str, object]:
    """Let one writer for each name commit to the table of that name; return the figures."""
    together([lambda name=name: catalog.create_table(name, SCHEMA) for name in sorted(set(names))])  # type: ignore[misc]
    writers = [Writer() for _ in names]
    tables = {name: catalog.load_table(name) for name in set(names)}
    first = {place: tables[name] for place, name in enumerate(names) if names.index(name) == place}
    cpu_s, deadline_s = time.process_time(), time.perf_counter() + seconds

    def one(place: int) -> None:
        def load() -> Table:
            known = first.pop(place, None)
            return known if known is not None else catalog.load_table(names[place])

        write(load, work, place, writers[place], deadline_s)

    together([lambda place=place: one(place) for place in range(len(names))])  # type: ignore[misc]
    cpu_s = time.process_time() - cpu_s
    lost = sum(lost_rows(catalog, work, name, names, writers) for name in sorted(set(names)))
    return figures(writers, seconds, cpu_s) | {"lost": lost}


def together(actions: Sequence[Callable[[], object]]) -> None:
    """Do things at once, in threads."""
    threads = [Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def figures(writers: Sequence[Writer], seconds: float, cpu_s: float) -> dict[str, object]:
    """Return rate, success and latencies; a commit counts that was answered in time."""
    latencies = sorted(one for writer in writers for one in writer.latencies_ms)
    acknowledged = sum(len(writer.acknowledged) for writer in writers)
    errors = sum((writer.errors for writer in writers), Counter())
    failed = sum(count for name, count in errors.items() if not name.startswith("load"))
    return {
        "commits_per_s": round(len(latencies) / seconds, 2),
        "success": round(acknowledged / max(acknowledged + failed, 1), 4),
        "p50_ms": round(median(latencies), 2) if latencies else None,
        "p99_ms": round(quantiles(latencies, n=100, method="inclusive")[-1], 2) if len(latencies) > 1 else None,
        "cpu_ms_per_commit": round(1000 * cpu_s / max(acknowledged, 1), 3),
        "acknowledged": acknowledged,
        "errors": dict(errors),
    }


def lost_rows(catalog: Catalog, work: str, name: str, names: Sequence[str], writers: Sequence[Writer]) -> int:
    """Return how many acknowledged rows or properties are not in the table."""
    table = catalog.load_table(name)
    mine = {place: writer.acknowledged for place, writer in enumerate(writers) if names[place] == name}
    if work == METADATA:
        held = {place: int(table.properties.get(f"writer-{place}", 0)) for place in mine}
        return sum(1 for place, numbers in mine.items() if numbers and held[place] < numbers[-1])
    ids = Counter(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
    expected = ((place * 1_000_000 + number) * ROWS for place, numbers in mine.items() for number in numbers)
    return sum(1 for first in expected for one in range(first, first + ROWS) if ids[one] != 1)
