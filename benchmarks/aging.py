"""The cost of commits and loads as a catalog ages: curves over the number of snapshots, schemas and tables.

    python -m benchmarks.aging                       # writes results/aging.json
    python -m benchmarks.aging --only append,schemas # only those parts; the others stay as they are in the file
    python -m benchmarks.aging --ages 50,100,200     # a shorter life
    python -m benchmarks.aging --label before        # under that label, to compare two versions of the code
    python -m benchmarks.aging --only ""             # prints the whole table, before and now, from the file

Requests are counted by an S3 server in memory (`benchmarks.s3_server`); *sequential* is the longest chain of requests
of which each began after the one before had ended. CPU times are those of the client's process.

* `append`: one-row appends through PyIceberg, in the default mode. At each age: requests, CPU time of an append and of
  a commit that sets a property, requests of a cold `load_catalog` and `load_table`, bytes of metadata files, wall time
  of `endive catalog history` and `check` without their imports.
* `schemas`: a property set on a table with 1, 6, 11, 16 and 21 schemas of 200 columns: CPU time, the size
  of the table's record, and bytes written to the log (compressed).
* `register`: `register_table` in a catalog with 10, 100, 1,000 tables.
* `threads`: committers over an object store with S3's latencies, in the default mode (`benchmarks.catalog_s3`).
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from benchmarks.report import RESULTS, commit, save
from benchmarks.s3_server import CountingServer, running_server, sequential
from endive.catalog import KVCatalog
from endive.catalog.model.keys import table_key
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.cli.catalog.past import history
from endive.objects import MemoryStore

PARTS = ("append", "schemas", "register", "threads")
AGES = (50, 100, 200, 500, 1000, 1500, 2000)
SAMPLES = 9
"""Commits measured at each age; the median counts."""
LATENCY_S = 0.02
"""Of the server while requests are counted, so that requests sent at once overlap."""
ROWS = pa.table({"id": pa.array([1], pa.int64())})
COLUMNS = 200
SCHEMAS = (1, 6, 11, 16, 21)
TABLES = (10, 100, 1000)

Row = dict[str, Any]


def cpu_ms(action: Callable[[], object], samples: int = SAMPLES) -> float:
    """Return the median CPU time of an action."""
    taken = []
    for _ in range(samples):
        start_s = time.process_time()
        action()
        taken.append(1000 * (time.process_time() - start_s))
    return round(median(taken), 2)


# Appends.


def append(ages: Sequence[int]) -> list[Row]:
    """Grow a table by appends, and measure it at each age."""
    rows = []
    with running_server() as server:
        catalog = _opened(server)
        catalog.create_namespace("db")
        catalog.create_table("db.t", ROWS.schema)
        for age in ages:
            table = catalog.load_table("db.t")
            while len(table.metadata.snapshots) < age - SAMPLES - 3:
                table.append(ROWS)
            row = {"snapshots": age} | _append_costs(server, catalog)
            catalog.close()
            row |= _cold_costs(server) | _command_costs(server)
            catalog = _opened(server)
            row |= {
                "metadata_files_bytes": sum(_metadata_files(server)),
                "metadata_files": len(_metadata_files(server)),
            }
            print(row, flush=True)
            rows.append(row)
        catalog.close()
    return rows


def _opened(server: CountingServer) -> EndiveCatalog:
    return EndiveCatalog("lake", uri="s3://bucket/lake", **server.properties)


def _append_costs(server: CountingServer, catalog: EndiveCatalog) -> Row:
    table = catalog.load_table("db.t")
    spent_ms = cpu_ms(lambda: table.append(ROWS))
    # The median of three: a compaction may run beside one of them.
    requests = sorted((counted(server, lambda: table.append(ROWS)) for _ in range(3)), key=lambda one: one["requests"])[
        1
    ]
    number = iter(range(10**6))

    def set_property() -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"number": str(next(number))})

    return {
        "append_cpu_ms": spent_ms,
        "append_requests": requests["requests"],
        "append_sequential": requests["sequential"],
        "property_cpu_ms": cpu_ms(set_property),
    }


def counted(server: CountingServer, action: Callable[[], object]) -> dict[str, int]:
    """Return the requests of an action; sequential are those that it waited for."""
    server.set_latency(LATENCY_S)
    server.take_requests()
    action()
    end_s = time.monotonic()  # the server's clock is the same
    time.sleep(5 * LATENCY_S)  # files that are deleted afterwards count as requests
    requests = server.take_requests()
    server.set_latency(0)
    return {"requests": len(requests), "sequential": sequential([one for one in requests if one.start_s < end_s])}


def _cold_costs(server: CountingServer) -> Row:
    opened: list[EndiveCatalog] = []
    opening = counted(server, lambda: opened.append(_opened(server)))
    loading = counted(server, lambda: opened[0].load_table("db.t"))
    opened[0].close()
    return {f"open_{name}": count for name, count in opening.items()} | {
        f"load_{name}": count for name, count in loading.items()
    }


def _command_costs(server: CountingServer) -> Row:
    """Return the wall times of commands, in this process: imports do not count."""
    properties = [f"{name}={value}" for name, value in server.properties.items()]
    start_s = time.monotonic()
    with redirect_stdout(StringIO()):
        history("s3://bucket/lake", "db.t", server.url, properties, as_json=True)
    history_s, start_s = time.monotonic() - start_s, time.monotonic()
    with closing(_opened(server)) as catalog:
        findings = catalog.kv.check()
    if findings:
        raise SystemExit(f"the catalog is damaged: {findings[:3]}")
    return {"history_s": round(history_s, 3), "check_s": round(time.monotonic() - start_s, 3)}


def _metadata_files(server: CountingServer) -> list[int]:
    return [size for name, size in server.sizes().items() if name.endswith(".metadata.json")]


# Schemas and tables.


class CountingObjects(MemoryStore):
    """Objects in memory, and the bytes that were written."""

    written_bytes = 0

    def put_if_absent(self, path: str, body: bytes) -> bool:
        self.written_bytes += len(body)
        return super().put_if_absent(path, body)


def wide_schema(added: int) -> Schema:
    """Return a schema of 200 columns, and so many more."""
    return Schema(
        *(NestedField(n, f"column_number_{n}", LongType(), required=False) for n in range(1, COLUMNS + added + 1))
    )


def schemas(_ages: Sequence[int]) -> list[Row]:
    """Set properties of a table that has had many schemas."""
    from endive.kv import Store  # noqa: PLC0415 - as the other names that only one part needs

    rows = []
    objects = CountingObjects()
    with TemporaryDirectory() as directory, Store(objects, "shared") as store:
        kv = KVCatalog(store, Path(directory).as_uri(), {"endive.metadata-json": "background"}, create=True)
        catalog = EndiveCatalog.on(kv)
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", wide_schema(0))
        number = iter(range(10**6))
        for count in SCHEMAS:
            while len(table.metadata.schemas) < count:
                with table.update_schema() as update:
                    update.add_column(f"added_{len(table.metadata.schemas)}", LongType())
            before = objects.written_bytes, store.stats()["batches"]
            spent_ms = cpu_ms(lambda: kv.update_properties("db.t", {"number": str(next(number))}))
            written, batches = objects.written_bytes - before[0], store.stats()["batches"] - before[1]
            row = {
                "schemas": count,
                "cpu_ms": spent_ms,
                "record_bytes": len(store.get(table_key(("db", "t"))) or b""),
                "bytes_per_commit": round(written / max(batches, 1)),
            }
            print(row, flush=True)
            rows.append(row)
        kv.close()
    return rows


def register(_ages: Sequence[int]) -> list[Row]:
    """Register tables in catalogs with more and more of them."""
    rows = []
    with TemporaryDirectory() as directory:
        other = EndiveCatalog("other", uri="memory://", warehouse=f"{directory}/other")
        other.create_namespace("db")
        catalog = EndiveCatalog("lake", uri="memory://", warehouse=f"{directory}/lake")
        catalog.create_namespace("db")
        made = registered = 0
        for count in TABLES:
            while made < count:
                catalog.create_table(f"db.t{made}", ROWS.schema)
                made += 1
            spent = []
            for _ in range(SAMPLES):
                table = other.create_table(f"db.t{registered}", ROWS.schema)
                start_s = time.process_time()
                catalog.register_table(f"db.r{registered}", table.metadata_location)
                spent.append(1000 * (time.process_time() - start_s))
                registered += 1
            row = {"tables": count, "cpu_ms": round(median(spent), 2)}
            print(row, flush=True)
            rows.append(row)
        catalog.close()
        other.close()
    return rows


def threads(_ages: Sequence[int]) -> list[Row]:
    """Commit from many threads over S3's latencies, in the default mode."""
    from benchmarks.catalog_s3 import through_pyiceberg  # noqa: PLC0415 - it needs the simulator

    rows = []
    for committers, tables in ((16, "one"), (64, "distinct")):
        found = through_pyiceberg("before-acknowledgement", "shared", committers, tables)
        row = {"committers": committers, "tables": tables, **found}
        print(row, flush=True)
        rows.append(row)
    return rows


SHOWN = (
    ("append: requests", "append", "append_requests", "≤ 9"),
    ("append: sequential requests", "append", "append_sequential", "≤ 6"),
    ("append: CPU ms", "append", "append_cpu_ms", "flat within 1.5x"),
    ("property set, default mode: CPU ms", "append", "property_cpu_ms", "≤ 2x"),
    ("cold `load_catalog`: sequential requests", "append", "open_sequential", "≤ 5"),
    ("cold `load_table`: sequential requests", "append", "load_sequential", "≤ 3"),
    ("bytes of metadata files", "append", "metadata_files_bytes", "old files removed"),
    ("`history`: s", "append", "history_s", "< 1"),
    ("`catalog check`: s", "append", "check_s", "linear"),
    ("table record with 21 schemas: bytes per commit", "schemas", "bytes_per_commit", "what changed"),
    ("`register_table`: CPU ms", "register", "cpu_ms", "indexed"),
    ("threads over S3's latencies, first and last case: commits/s", "threads", "commits_per_s", "≥ 80 (one table, 16)"),
)
"""What the issue of flat costs asks for: a part, one of its figures, and the aim."""


def table(labels: Row) -> str:
    """Return the first and the last row of every figure, before and now; the store's are in `aging_store`."""
    lines = ["| figure | before: first → last | now: first → last | aim |", "|---|---:|---:|---|"]
    for name, part, column, aim in SHOWN:
        cells = []
        for label in ("before", "now"):
            rows = [row for row in labels.get(label, {}).get(part, {}).get("rows", ()) if column in row]
            cells.append(f"{rows[0][column]:,} → {rows[-1][column]:,}" if rows else "not measured")
        lines.append(f"| {name} | {' | '.join(cells)} | {aim} |")
    return "\n".join(lines)


MEASURES: dict[str, Callable[[Sequence[int]], list[Row]]] = {
    "append": append,
    "schemas": schemas,
    "register": register,
    "threads": threads,
}


def main() -> None:
    """Measure the parts that were asked for, and save them beside the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}; empty: the table only")
    parser.add_argument("--ages", default=",".join(map(str, AGES)), help="numbers of snapshots")
    parser.add_argument("--label", default="now", help="`before` for figures to compare with")
    arguments = parser.parse_args()
    file = RESULTS / "aging.json"
    known: Row = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    labels: Row = known.get("labels", {})
    for part in filter(None, arguments.only.split(",")):
        rows = MEASURES[part]([int(age) for age in arguments.ages.split(",")])
        labels.setdefault(arguments.label, {})[part] = {"commit": commit(), "rows": rows}
        save("aging", {"labels": labels})
    print(table(labels))


if __name__ == "__main__":
    main()
