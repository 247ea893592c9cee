"""A Spark task of a sweep: it does the runs of one bin and writes their rows to one file.

A task may be repeated, or run twice at once: its process is killed, its machine is lost, Spark tries another copy. The
names of its files depend on the bin alone, and their contents are the same each time, so a repetition changes nothing.
A run that raises an error is recorded as `failed`. A run that ends its process leaves a marker file; after two of them
it is recorded as `crashed` and left out, so that it does not stop the other runs of its bin. A result that cannot be
written is neither: it ends the sweep, and the run counts as not done.
"""

import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from endive import __version__
from endive.errors import ResultError
from endive.files import make_directory
from endive.pipeline.directory import SweepDirectory, write_run_rows, write_table
from endive.pipeline.plan import Bin, Run
from endive.pipeline.run_rows import done_row, not_done_row
from endive.pipeline.sweep_file import Keep
from endive.sim.config.configuration import MODEL_VERSION, Settings, parse_configuration
from endive.sim.engine.run import summarise_compiled
from endive.sim.engines import simulate
from endive.sim.results.summary import Summary

MODEL = f"endive {__version__}, model {MODEL_VERSION}"
"""Version that computes the metrics. All machines of a sweep must agree on it."""

CRASHES_MAX = 2
"""A run that has ended its process this often is not tried again."""


@dataclass(frozen=True)
class SweepJob:
    """The input of every task of a sweep, broadcast to the executors."""

    directory: Path
    keep: Keep
    configurations: Mapping[str, tuple[str, str]]
    """By experiment: the configuration as TOML, and the file to which its paths are relative."""
    bins: Sequence[Bin]
    start: str
    """Identifies this start of the sweep; markers of earlier starts do not count."""
    model: str = MODEL

    @property
    def markers(self) -> Path:
        """Directory of the markers of runs in progress."""
        return self.directory / ".running" / self.start


@dataclass(frozen=True)
class TaskReport:
    """Result of a task."""

    statuses: Mapping[str, int]
    """How many runs were done, failed or crashed."""
    error: ResultError | None = None
    """Why nothing could be written. The sweep cannot continue."""


def run_bin(job: SweepJob, number: int, attempt: int) -> TaskReport:
    """Do the runs of bin `number`; `attempt` distinguishes this try from all others."""
    path = SweepDirectory(job.directory).part(job.start, number)
    try:
        _check(job)
        if path.is_file():
            return TaskReport({})  # an earlier attempt has written it, and was lost before it could report
        rows = [_run(job, run, attempt) for run in job.bins[number].runs]
        write_run_rows(path, rows)
    except ResultError as error:
        return TaskReport({}, error)
    return TaskReport(Counter(row["status"] for row in rows))


def _check(job: SweepJob) -> None:
    host = socket.gethostname()
    if job.model != MODEL:
        problem = f"{host} runs {MODEL}, the sweep needs {job.model}"
        raise ResultError(str(job.directory), problem, "install the same version on every machine")
    if not job.directory.is_dir():
        remedy = "choose an --out that every machine of the cluster sees"
        raise ResultError(str(job.directory), f"does not exist on {host}", remedy)


def _run(job: SweepJob, run: Run, attempt: int) -> dict[str, Any]:
    """Do one run and return its row."""
    experiment, seed = run
    marker = job.markers / f"{experiment}-{seed}.{attempt}"
    if len(list(job.markers.glob(f"{experiment}-{seed}.*"))) >= CRASHES_MAX:
        message = f"its process ended {CRASHES_MAX} times without an error: out of memory, or a defect of the engine"
        return not_done_row(experiment, seed, "crashed", message)
    with suppress(OSError):  # without a marker a crash only costs more attempts
        marker.touch()
    try:
        started_s = time.process_time()
        summary = _simulate(job, run)
        return done_row(experiment, seed, summary, time.process_time() - started_s)
    except ResultError:
        raise
    except Exception as error:  # noqa: BLE001 - any error concerns this run only
        return not_done_row(experiment, seed, "failed", f"{type(error).__name__}: {error}")
    finally:
        with suppress(OSError):
            marker.unlink(missing_ok=True)


def _simulate(job: SweepJob, run: Run) -> Summary:
    experiment, seed = run
    settings = _settings(*job.configurations[experiment])
    if job.keep == "summaries":
        return summarise_compiled(settings, seed, settings.window)[0]
    result = simulate(settings, seed)
    path = SweepDirectory(job.directory).transactions(experiment, seed)
    make_directory(path.parent)
    write_table(path, result.table)
    return result.summary(settings.window)


@lru_cache(maxsize=8)
def _settings(text: str, source: str) -> Settings:
    """Return a parsed configuration; the seeds of an experiment follow each other."""
    return parse_configuration(text, source)
