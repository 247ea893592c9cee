"""A Spark task of a sweep: it does the runs of one bin and writes their rows to one file.

A task may be repeated, or run twice at once: its process is killed, its machine is lost, Spark tries another copy. The
names of its files depend on the bin alone, and the first attempt to create a file decides its content, so a repetition
changes nothing. A run that raises an error is recorded as `failed`. A result that cannot be written is no failed run:
it ends the sweep, and the run counts as not done.

A bin that turns out to cost more than `TASK_SECONDS_MAX` is cut: the task writes the rows that it has and gives the
other runs back, for smaller bins. So a wrong estimate neither keeps one core busy at the end nor makes a killed task
lose more than seconds.

From the second attempt of a bin on, every run leaves a marker while it is in progress. A run that has ended its process
twice with a marker is recorded as `crashed` and left out, so that it does not stop the other runs of its bin. The first
attempt leaves none: three requests for each run would cost more than many runs do. So a run that ends its process is
tried three times, or twice if another run has ended the first attempt.
"""

import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from endive import __version__
from endive.errors import ResultError
from endive.pipeline.directory import ABOUT, MARKERS, SweepDirectory, read_parquet
from endive.pipeline.plan import BIN_SECONDS, Bin, Run
from endive.pipeline.run_rows import RUN_SCHEMA, done_row, not_done_row
from endive.pipeline.sweep_file import Keep
from endive.pipeline.table_files import Files, TableFiles, explained, of_run
from endive.sim.config.configuration import MODEL_VERSION, Settings, parse_configuration
from endive.sim.engine.run import summarise_compiled
from endive.sim.engines import simulate
from endive.sim.results.summary import Summary

MODEL = f"endive {__version__}, model {MODEL_VERSION}"
"""Version that computes the metrics. All machines of a sweep must agree on it."""

TASK_SECONDS_MAX = 3 * BIN_SECONDS[1]
"""Processor time after its first run after which a task begins no other."""

CRASHES_MAX = 2
"""A run that has ended its process this often is not tried again."""


@dataclass(frozen=True)
class SweepJob:
    """The input of every task of a sweep, broadcast to the executors."""

    directory: SweepDirectory
    keep: Keep
    configurations: Mapping[str, tuple[str, str]]
    """By experiment: the configuration as TOML, and the file to which its paths are relative."""
    bins: Mapping[int, Bin]
    """By number; no other bin of this start of the sweep has the same."""
    start: str
    """Identifies this start of the sweep; markers of earlier starts do not count."""
    tables: TableFiles | None = None
    """Where rows go in place of the directory, if the sweep lives in tables alone."""
    model: str = MODEL

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.tables.sweep if self.tables else self.directory.name

    @property
    def markers(self) -> str:
        """Folder of the markers of runs in progress."""
        return f"{MARKERS}/{self.start}"

    def part(self, number: int) -> str:
        """Return the file of a bin's rows."""
        return self.directory.part(self.start, number)


@dataclass(frozen=True)
class TaskReport:
    """Result of a task."""

    bin: int
    statuses: Mapping[str, int]
    """How many runs were done, failed or crashed."""
    error: ResultError | None = None
    """Why nothing could be written. The sweep cannot continue."""
    files: Files | None = None
    """The data files of the bin, to be committed; None if its rows are in the directory."""
    left: tuple[Run, ...] = ()
    """Runs of the bin that were given back."""
    cpu_s: float = 0.0
    """Measured cost of the runs that are done."""


def run_bin(job: SweepJob, number: int, attempt: int) -> TaskReport:
    """Do the runs of bin `number`. `attempt` is Spark's number of this try: 0, or more if there were or are others."""
    files: Files | None = None
    try:
        _check(job.directory, job.model)
        rows = _found(job, number) if attempt else None
        if rows is None:
            kept: list[pa.Table] = []
            rows = _rows(job, number, attempt, kept)
            if job.tables:
                files = _write_files(job.tables, number, attempt, rows, kept)
            elif not job.directory.create_part(job.part(number), rows):
                rows = _found(job, number) or rows  # of an attempt that was faster, and may have done fewer runs
    except ResultError as error:
        return TaskReport(number, {}, error)
    done = {(row["experiment"], row["seed"]) for row in rows}
    left = tuple(run for run in job.bins[number].runs if run not in done)
    cpu_s = sum(row.get("cpu_s") or 0.0 for row in rows)
    return TaskReport(number, Counter(row["status"] for row in rows), None, files, left, cpu_s)


def _rows(job: SweepJob, number: int, attempt: int, kept: list[pa.Table]) -> list[dict[str, Any]]:
    """Do the runs of a bin, at least one, until they have cost too much; return their rows."""
    crashes = _crashes(job) if attempt else {}
    started_s, rows = 0.0, list[dict[str, Any]]()
    for run in job.bins[number].runs:
        if rows and time.process_time() > started_s + TASK_SECONDS_MAX:
            break
        rows.append(_run(job, run, attempt, crashes.get(_label(run), 0), kept))
        started_s = started_s or time.process_time()  # the first run of a process may compile the engine
    return rows


def _write_files(
    tables: TableFiles, number: int, attempt: int, rows: list[dict[str, Any]], kept: Sequence[pa.Table]
) -> Files:
    """Write the rows of a bin to data files that the Spark driver commits."""
    with explained(tables.sweep, "the rows of a bin"):
        runs = pa.Table.from_pylist(rows, schema=RUN_SCHEMA)
        return tables.write(number, attempt, {"transactions": kept, "runs": [runs]})


@lru_cache(maxsize=8)
def _check(directory: SweepDirectory, model: str) -> None:
    """Check once in each process that it is the right version, and sees the directory."""
    host = socket.gethostname()
    if model != MODEL:
        problem = f"{host} runs {MODEL}, the sweep needs {model}"
        raise ResultError(str(directory), problem, "install the same version on every machine")
    if directory.read(ABOUT) is None:
        remedy = "choose an --out that every machine of the cluster sees, such as s3://bucket/sweeps"
        raise ResultError(str(directory), f"does not exist on {host}", remedy)


def _found(job: SweepJob, number: int) -> list[dict[str, Any]] | None:
    """Return the rows that another attempt of this bin has written; None if there are none."""
    body = job.directory.read(job.part(number))
    return None if body is None else read_parquet(body).to_pylist()


def _label(run: Run) -> str:
    experiment, seed = run
    return f"{experiment}-{seed}"


def _crashes(job: SweepJob) -> Counter[str]:
    """Return how many markers each run has left."""
    names = (info.path.rpartition("/")[2] for info in job.directory.list(f"{job.markers}/"))
    return Counter(name.partition(".")[0] for name in names)


@contextmanager
def _marked(job: SweepJob, run: Run, attempt: int) -> Iterator[None]:
    """Leave a marker while a run is in progress, unless this is the bin's first attempt."""
    path = f"{job.markers}/{_label(run)}.{attempt}"
    with suppress(ResultError):  # without a marker a crash only costs more attempts
        if attempt:
            job.directory.create(path, b"")
    try:
        yield
    finally:
        with suppress(ResultError):
            if attempt:
                job.directory.delete(path)


def _run(job: SweepJob, run: Run, attempt: int, crashes: int, kept: list[pa.Table]) -> dict[str, Any]:
    """Do one run and return its row; add its transactions to `kept` if they go to a table."""
    experiment, seed = run
    if crashes >= CRASHES_MAX:
        message = f"its process ended at least {CRASHES_MAX} times: out of memory, or a defect of the engine"
        return not_done_row(experiment, seed, "crashed", message)
    with _marked(job, run, attempt):
        try:
            started_s = time.process_time()
            summary, counters, transactions = _simulate(job, run)
            if transactions is not None:
                kept.append(of_run(transactions, run))
            settings = _settings(*job.configurations[experiment])
            return done_row(experiment, seed, summary, time.process_time() - started_s, counters, settings)
        except ResultError:
            raise
        except Exception as error:  # noqa: BLE001 - any error concerns this run only
            return not_done_row(experiment, seed, "failed", f"{type(error).__name__}: {error}")


def _simulate(job: SweepJob, run: Run) -> tuple[Summary, Counter[str], pa.Table | None]:
    """Return a run's metrics and counters, and its transactions if they go to a table.

    To the directory, transactions go at once.
    """
    experiment, seed = run
    settings = _settings(*job.configurations[experiment])
    if job.keep == "summaries":
        return *summarise_compiled(settings, seed, settings.window), None
    result = simulate(settings, seed)
    summary = result.summary(settings.window)
    if job.tables is not None:
        return summary, result.counters, result.table
    job.directory.create_table(job.directory.transactions(experiment, seed), result.table)
    return summary, result.counters, None


@lru_cache(maxsize=8)
def _settings(text: str, source: str) -> Settings:
    """Return a parsed configuration; the seeds of an experiment follow each other."""
    return parse_configuration(text, source)
