"""What a Spark task does: the runs of one bin, and their rows in one file.

A task may be repeated, or run twice at once: its process is killed, its machine is lost, Spark tries another copy.
Everything it writes has a name that depends on the bin alone and holds the same figures each time, so a repetition
changes nothing. A run that raises an error is recorded as `failed`. A run that ends its process cannot be: it leaves a
mark, and after two marks it is recorded as `crashed` and left out, so that it does not stop the others of its bin.
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

import pyarrow.parquet as pq

from endive import __version__
from endive.errors import ResultError
from endive.files import make_directory, write_durably
from endive.pipeline import run_rows as records
from endive.pipeline.directory import SweepDirectory, write_rows
from endive.pipeline.plan import Bin, Run
from endive.pipeline.sweep import Keep
from endive.sim.config.configuration import MODEL_VERSION, Settings, parse_configuration
from endive.sim.engine.run import summarise_compiled
from endive.sim.engines import simulate
from endive.sim.results.summary import Summary

MODEL = f"endive {__version__}, model {MODEL_VERSION}"
"""What computes the figures. Machines that differ in it must not work on one sweep."""

MARKS_MAX = 2
"""A run that has ended its process so often is not tried again."""


@dataclass(frozen=True)
class Work:
    """What every task of a sweep knows."""

    directory: Path
    keep: Keep
    configurations: Mapping[str, tuple[str, str]]
    """By experiment: the configuration as TOML, and the file that paths in it are seen from."""
    bins: Sequence[Bin]
    start: str
    """Names this start of the sweep; marks of earlier ones do not count."""
    model: str = MODEL


@dataclass(frozen=True)
class Report:
    """What a task says when it is over."""

    statuses: Mapping[str, int]
    """How many runs were done, failed or crashed."""
    obstacle: ResultError | None = None
    """Why nothing could be written. The sweep cannot go on."""


def do_bin(work: Work, number: int, attempt: int) -> Report:
    """Do the runs of bin `number`; `attempt` tells this try from all others."""
    path = SweepDirectory(work.directory).part(work.start, number)
    try:
        _check(work)
        if path.is_file():
            return Report({})  # an earlier attempt has written it, and was lost before it could say so
        rows = [_row(work, run, attempt) for run in work.bins[number].runs]
        write_rows(path, rows)
    except ResultError as error:
        return Report({}, error)
    return Report(Counter(row["status"] for row in rows))


def _check(work: Work) -> None:
    host = socket.gethostname()
    if work.model != MODEL:
        problem = f"{host} runs {MODEL}, the sweep needs {work.model}"
        raise ResultError(str(work.directory), problem, "install the same version on every machine")
    if not work.directory.is_dir():
        remedy = "choose an --out that every machine of the cluster sees"
        raise ResultError(str(work.directory), f"is not there on {host}", remedy)


def _row(work: Work, run: Run, attempt: int) -> dict[str, Any]:
    experiment, seed = run
    marks = work.directory / ".running" / work.start
    mark = marks / f"{experiment}-{seed}.{attempt}"
    if len(list(marks.glob(f"{experiment}-{seed}.*"))) >= MARKS_MAX:
        message = f"its process ended {MARKS_MAX} times without a word: out of memory, or a defect of the engine"
        return records.not_done(experiment, seed, "crashed", message)
    with suppress(OSError):  # without a mark a crash costs more attempts, no more than that
        mark.touch()
    try:
        started_s = time.process_time()
        summary = _simulate(work, run)
        return records.done(experiment, seed, summary, time.process_time() - started_s)
    except ResultError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this run only
        return records.not_done(experiment, seed, "failed", f"{type(error).__name__}: {error}")
    finally:
        with suppress(OSError):
            mark.unlink(missing_ok=True)


def _simulate(work: Work, run: Run) -> Summary:
    experiment, seed = run
    settings = _settings(*work.configurations[experiment])
    if work.keep == "summaries":
        return summarise_compiled(settings, seed, settings.window)[0]
    result = simulate(settings, seed)
    path = SweepDirectory(work.directory).transactions(experiment, seed)
    make_directory(path.parent)
    write_durably(path, lambda part: pq.write_table(result.table, part, compression="zstd"))
    return result.summary(settings.window)


@lru_cache(maxsize=8)
def _settings(text: str, source: str) -> Settings:
    """Return a configuration; the seeds of an experiment come one after another."""
    return parse_configuration(text, source)
