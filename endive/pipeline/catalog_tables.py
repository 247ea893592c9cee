"""A sweep's results in tables of a catalog: `endive sweep --catalog URL`, and back for `endive report URL`.

    sweep.sweeps          one row whenever a sweep begins with another plan than before: `about.json`
    sweep.experiments     one row per plan, group and experiment, with its configuration and parameters
    sweep.runs            one row per run, with all its metrics
    sweep.transactions    every transaction, if they are kept

A sweep may live in the tables alone: then tasks write data files, see `table_files`. A sweep with a directory resumes
from there. Whenever a task has finished a bin of runs, the Spark driver appends the bin's rows in one commit, whose id
is made of the sweep's name and the name of the bin's file. So a sweep that is killed and repeated, or published twice,
has every bin in the tables once. Transactions are committed before the rows of their runs, so a reader who sees a run
also sees its transactions. If two starts of a sweep did the same run, it is in the tables twice; readers take one row,
as with the files. The tables show the plan that began last. A sweep fetches its own plan by the digest, so that another
sweep of the same name does not change its results.
"""

import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.table import Table

from endive.errors import ResultError
from endive.pipeline.directory import ABOUT, SweepDirectory, read_parquet
from endive.pipeline.plan import Run
from endive.pipeline.run_rows import RUN_SCHEMA, with_later_columns
from endive.pipeline.saved_sweep import SavedSweep, one_per_run
from endive.pipeline.table_files import (
    OF_RUN,
    OF_SWEEP,
    TEXT,
    WRITTEN,
    Files,
    TableFiles,
    explained,
    of_run,
    of_sweep,
    write_prefix,
)
from endive.pipeline.transactions import read_transactions
from endive.sim.results.columns import SCHEMA as TRANSACTION_SCHEMA
from endive.sim.results.labels import TRUST
from endive.spark.source.committing import Written, commit, found
from endive.spark.source.options import Place, WriteOptions, open_catalog
from endive.spark.source.types import struct_of
from endive.spark.source.views import without_history
from endive.spark.source.writing import WriteJob, write_rows

NAMESPACE = "sweep"

NUMBER = pa.float64()
PLAIN = {
    "family": TEXT, "experiment": TEXT, "load": NUMBER, "duration_ms": NUMBER, "window_start_ms": NUMBER,
    "window_end_ms": NUMBER, "config": TEXT, TRUST: TEXT,
}  # fmt: skip
"""Columns that the experiments of every sweep have; parameters differ from sweep to sweep."""

TABLES = {
    "sweeps": pa.schema([OF_SWEEP, ("plan", TEXT), ("created", TEXT), ("about", TEXT)]),
    "experiments": pa.schema([OF_SWEEP, ("plan", TEXT), *PLAIN.items(), ("parameters", TEXT)]),
    "runs": pa.schema([OF_SWEEP, *RUN_SCHEMA]),
    "transactions": pa.schema([OF_SWEEP, *OF_RUN, *TRANSACTION_SCHEMA]),
}

EQUAL: Callable[..., BooleanExpression] = EqualTo

COMMIT_S = 5.0
"""Bins that finish within this time are one commit: thousands of snapshots would slow down every reader."""

RESTORED = "catalog-"
"""Begins the start in the names of files with runs that came from a catalog."""

NO_SWEEPS = "name the URL of a catalog that `endive sweep --catalog` has written to"


@dataclass
class Publication:
    """Publishes a sweep in a catalog: `with Publication(url, name, directory) as sweep: sweep.begin(missing)`."""

    url: str
    name: str
    directory: SweepDirectory
    alone: bool = False
    """Whether the sweep lives in the tables alone: the directory is for its duration only."""
    published: set[str] = field(default_factory=set)
    """Names of the files, or numbers of the bins, whose runs are in the tables."""
    _open: ExitStack = field(default_factory=ExitStack)
    _committed_s: float = -math.inf

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the catalog, which is created if it does not exist."""
        return {**catalog_at(self.url, self.directory.endpoint), "endive.create": "true"}

    @property
    def tables(self) -> list[str]:
        """The tables' names."""
        return [f"{NAMESPACE}.{table}" for table in TABLES]

    def __enter__(self) -> Self:
        with explained(self.url, "the tables"):
            # Kept open: every commit would otherwise read the catalog's log from its beginning.
            catalog = self._open.enter_context(open_catalog(self.properties))
            catalog.create_namespace_if_not_exists(NAMESPACE)
            for name, schema in TABLES.items():
                table = catalog.create_table_if_not_exists(f"{NAMESPACE}.{name}", schema)
                if set(schema.names) - set(table.schema().column_names):  # made by an older version
                    table.update_schema().union_by_name(schema).commit()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def begin(self, missing: Collection[Run]) -> set[Run]:
        """Write the plan into the tables; return the `missing` runs that were restored from them.

        Restored runs are written into the directory, so that they are not repeated.
        """
        about = SavedSweep(self.directory).about
        experiments = read_parquet(self.directory.read(about["experiments"]) or b"").to_pylist()
        digest = str(about["plan"])
        key = {"sweep": self.name, "plan": digest}
        rows = [{**key, **_with_parameters(row)} for row in experiments]
        self._append("experiments", rows, digest)
        if self._shown_plan() != digest:
            begun = datetime.now(UTC).isoformat(timespec="microseconds")
            self._append("sweeps", [{**key, "created": begun, "about": json.dumps(about)}], f"{digest}/{begun}")
        return self._restore(set(missing)) if self.alone or about["keep"] == "summaries" else set()

    def _shown_plan(self) -> str | None:
        """Return the digest of the plan that the tables show; None if they have none of this sweep."""
        with open_catalog(self.properties) as catalog:
            plans = _plans(catalog, self.name)
        return str(plans[-1]["plan"]) if plans else None

    def _restore(self, missing: set[Run]) -> set[Run]:
        found = read_runs(catalog_at(self.url, self.directory.endpoint), self.name)
        rows = [row for row in found.to_pylist() if row["status"] == "done"]
        restored = [row for row in rows if (row["experiment"], row["seed"]) in missing]
        if restored and not self.alone:
            self.directory.create_part(self.directory.part(f"{RESTORED}{secrets.token_hex(4)}", 0), restored)
        return {(row["experiment"], row["seed"]) for row in restored}

    def table_files(self) -> TableFiles:
        """Return what tasks need in order to write data files for the tables."""
        jobs = {}
        for name in WRITTEN:
            with Place(self.properties, (NAMESPACE, name)).table() as table:
                jobs[name] = write_job(table, write_prefix(self.name))
        return TableFiles(self.name, jobs)

    def commit(self, bins: Mapping[int, Files], is_last: bool = False) -> None:
        """Append the bins that have finished since the last call; not more often than every `COMMIT_S` seconds."""
        new = {number: files for number, files in bins.items() if str(number) not in self.published}
        now_s = time.monotonic()
        if not new or (not is_last and now_s < self._committed_s + COMMIT_S):
            return
        for table in WRITTEN:  # a reader who sees a run also sees its transactions
            written = [files[table] for files in new.values() if table in files]
            if written:
                name = f"{self.name}/{written[0].write_id}/{min(new)}"
                with explained(self.url, f"the table {NAMESPACE}.{table}"):
                    commit(Place(self.properties, (NAMESPACE, table)), WriteOptions(), written, name)
        self.published |= {str(number) for number in new}
        self._committed_s = now_s

    def publish(self, parts: Iterable[str]) -> None:
        """Append the bins of these files, unless they are in the tables already."""
        names = [name for name in parts if name not in self.published and f"/part-{RESTORED}" not in name]
        for name, rows in self.directory.read_parts(names):
            self._publish_part(name.rpartition("/")[2].removesuffix(".parquet"), rows)
            self.published.add(name)

    def _publish_part(self, name: str, rows: pa.Table) -> None:
        if SavedSweep(self.directory).about["keep"] == "transactions":
            done = rows.filter(pc.equal(rows["status"], "done"))
            tables = [of_run(read_transactions(self.directory, run), run) for run in _runs_of(done)]
            if tables:
                self._append_table("transactions", pa.concat_tables(tables), name)
        self._append_table("runs", rows, name)

    def _append(self, table: str, rows: Iterable[Mapping[str, Any]], name: str) -> None:
        schema = pa.schema([field for field in TABLES[table] if field.name != "sweep"])
        self._append_table(table, pa.Table.from_pylist([*rows], schema=schema), name)

    def _append_table(self, table: str, rows: pa.Table, name: str) -> None:
        """Append rows of this sweep in one commit, once; `name` identifies them."""
        place = Place(self.properties, (NAMESPACE, table))
        with explained(self.url, f"the table {place}"):
            append_once(place, of_sweep(rows, self.name), f"{self.name}/{name}")


def append_once(place: Place, rows: pa.Table, commit_id: str) -> None:
    """Append rows to a table in one commit; a repetition with the same `commit_id` does nothing."""
    with place.table() as table:
        if found(table, commit_id):
            return
        job = write_job(table)
    files = write_rows(job, rows.to_batches(), "00000-0")
    uuid, spec_id = str(job.metadata.table_uuid), job.metadata.default_spec_id
    commit(place, WriteOptions(), [Written(0, files, uuid, spec_id, job.write_id)], commit_id)


def write_job(table: Table, prefix: str = "") -> WriteJob:
    """Return what tasks need in order to write data files of a table; their write id begins with `prefix`."""
    struct = struct_of(table.schema(), ".".join(table.name()))
    return WriteJob(without_history(table.metadata), table.io, struct, f"{prefix}{secrets.token_hex(8)}")


def catalog_at(url: str, endpoint: str | None = None) -> dict[str, str]:
    """Return the properties of the catalog at a URL; `endpoint` is that of an S3-compatible server."""
    return {"uri": url, **({"s3.endpoint": endpoint} if endpoint else {})}


def read_runs(properties: Mapping[str, str], sweep: str) -> pa.Table:
    """Return the rows of a sweep's runs, one for each run."""
    with open_catalog(properties) as catalog:
        rows = with_later_columns(_read(catalog, "runs", sweep))
        return one_per_run(rows.select(RUN_SCHEMA.names).cast(RUN_SCHEMA))


def sweeps_in(properties: Mapping[str, str]) -> list[str]:
    """Return the names of the sweeps in a catalog, the most recent first."""
    with open_catalog(properties) as catalog:
        rows = _read(catalog, "sweeps", None).to_pylist()
    last = {row["sweep"]: row["created"] for row in sorted(rows, key=lambda row: str(row["created"]))}
    return sorted(last, key=lambda name: last[name], reverse=True)


def fetch(properties: Mapping[str, str], sweep: str, target: SweepDirectory, plan: str | None = None) -> SavedSweep:
    """Copy a sweep from a catalog into a directory, as `endive sweep` would have written it.

    `plan` is the digest of one of its plans; None: the plan that began last.
    """
    with open_catalog(properties) as catalog:
        plans = _plans(catalog, sweep, plan)
        if not plans:
            known = ", ".join(sweeps_in(properties)) or "none"
            raise ResultError(
                properties["uri"], f"has no sweep {sweep!r}; there are: {known}", "name one of them with --sweep"
            )
        newest = plans[-1]
        experiments = _experiments_of(_read(catalog, "experiments", sweep, newest["plan"]).to_pylist())
    # The rows of runs have their metrics; transactions are not needed.
    about = {**json.loads(newest["about"]), "keep": "summaries", "experiments": f"experiments-{newest['plan']}.parquet"}
    target.create_table(about["experiments"], experiments)
    target.write(ABOUT, json.dumps(about, indent=2, ensure_ascii=False).encode())
    target.create_table(target.part(f"{RESTORED}fetched", 0), read_runs(properties, sweep))
    return SavedSweep(target)


def _plans(catalog: Catalog, sweep: str, plan: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a sweep's plans, the one that began last at the end."""
    rows: list[dict[str, Any]] = _read(catalog, "sweeps", sweep, plan).to_pylist()
    return sorted(rows, key=lambda row: str(row["created"]))


def _read(catalog: Catalog, table: str, sweep: str | None, plan: str | None = None) -> pa.Table:
    try:
        loaded = catalog.load_table((NAMESPACE, table))
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise ResultError(str(catalog.properties.get("uri")), "holds no sweeps", NO_SWEEPS) from error
    conditions = [EQUAL(name, value) for name, value in (("sweep", sweep), ("plan", plan)) if value is not None]
    everything: BooleanExpression = AlwaysTrue()
    return loaded.scan(reduce(And, conditions, everything)).to_arrow()


def _with_parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment's row with its parameters, which differ between sweeps, as one JSON column."""
    plain = {name: value for name, value in row.items() if name in PLAIN}
    return {**plain, "parameters": json.dumps({name: value for name, value in row.items() if name not in PLAIN})}


def _experiments_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return experiments with a column for each parameter, as in `experiments.parquet`."""
    parsed = [(row, json.loads(row["parameters"])) for row in rows]
    names = list(dict.fromkeys(name for _, parameters in parsed for name in parameters))
    columns: dict[str, pa.Array] = {
        name: pa.array([row[name] for row, _ in parsed], kind) for name, kind in PLAIN.items()
    }
    for name in names:
        columns[name] = pa.array([parameters.get(name) for _, parameters in parsed])
    return pa.table(columns)


def _runs_of(rows: pa.Table) -> list[Run]:
    pairs = rows.select(["experiment", "seed"]).to_pylist()
    return [(pair["experiment"], pair["seed"]) for pair in pairs]
