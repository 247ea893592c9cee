"""Runs a plan on Spark: one task for each bin, exactly one row for each run, and on with it after any interruption."""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import Accumulator, AccumulatorParam, InheritableThread, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from endive.errors import ResultError, SparkUnavailableError
from endive.files import make_directory
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Bin, Plan
from endive.pipeline.task import Report, Work, do_bin

POLL_S = 0.25

REMEDY = "start the same command again: what is finished is kept"

Progress = Callable[[int, float], None]
"""Is told how many runs are done, and how many of the estimated seconds they stand for."""


@dataclass(frozen=True)
class Outcome:
    """How a sweep ended."""

    found: int
    """Runs that were done before it began."""
    statuses: Mapping[str, int]
    """How many of the others were done, failed or crashed."""


class _Obstacles(AccumulatorParam[list[ResultError]]):
    """Collects what stopped tasks: it reaches the Spark driver when a task ends, not when all have ended."""

    def zero(self, value: list[ResultError]) -> list[ResultError]:  # noqa: ARG002 - Spark's interface
        return []

    def addInPlace(self, value1: list[ResultError], value2: list[ResultError]) -> list[ResultError]:  # noqa: N802
        return value1 + value2


def execute(plan: Plan, out: Path, spark: SparkSession, progress: Progress | None = None) -> Outcome:
    """Do every run of the plan that is not done yet. What is finished stays finished, whatever happens.

    Raises `ResultError` if the directory cannot be written, and `SparkUnavailableError` if Spark gives up.
    """
    directory = SweepDirectory(out.absolute())
    directory.prepare(plan)
    done = directory.done(plan)
    runs = plan.remaining(done)
    if not runs:
        return Outcome(len(done), {})
    context = spark.sparkContext
    bins = plan.bins(runs, context.defaultParallelism)
    work = _work(plan, directory, bins)
    make_directory(directory.path / ".running" / work.start)
    try:
        reports = _Job(context, work).run(lambda: _tell(work, progress))
    finally:
        rmtree(directory.path / ".running" / work.start, ignore_errors=True)
    return Outcome(len(done), sum((Counter(report.statuses) for report in reports), Counter()))


def _work(plan: Plan, directory: SweepDirectory, bins: list[Bin]) -> Work:
    needed = {experiment for one in bins for experiment, _ in one.runs}
    configurations = {
        name: (settings.text, str(Path(settings.source).absolute()))
        for name, settings in plan.experiments.items()
        if name in needed
    }
    return Work(directory.path, plan.keep, configurations, bins, secrets.token_hex(4))


def _tell(work: Work, progress: Progress | None) -> None:
    if progress:
        directory = SweepDirectory(work.directory)
        there = {path.name for path in directory.parts.iterdir()}
        finished = [one for number, one in enumerate(work.bins) if directory.part(work.start, number).name in there]
        progress(sum(len(one.runs) for one in finished), sum(one.seconds for one in finished))


@dataclass
class _Job:
    """One Spark job in a thread of its own, so that Ctrl-C and progress have the main one."""

    context: SparkContext
    work: Work
    reports: list[Report] = field(default_factory=list)
    error: Exception | None = None

    def run(self, tell: Callable[[], None]) -> list[Report]:
        """Run it, calling `tell` now and then. An obstacle or an interruption cancels what has not begun."""
        obstacles = self.context.accumulator([], _Obstacles())
        thread = InheritableThread(target=lambda: self._collect(obstacles), daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not obstacles.value:
                thread.join(POLL_S)
                tell()
        finally:
            if thread.is_alive():
                self.context.cancelJobGroup(self.work.start)
        if obstacles.value:
            raise obstacles.value[0]
        if self.error:
            raise SparkUnavailableError(f"Spark gave up: {_cause(self.error)}", REMEDY) from self.error
        return self.reports

    def _collect(self, obstacles: Accumulator[list[ResultError]]) -> None:
        shared = self.context.broadcast(self.work)

        def task(number: int) -> Report:
            report = do_bin(shared.value, number, _attempt())
            if report.obstacle:
                obstacles.add([report.obstacle])
            return report

        numbers = range(len(self.work.bins))
        self.context.setJobGroup(self.work.start, "sweep", interruptOnCancel=True)
        try:
            self.reports = self.context.parallelize(numbers, len(numbers)).map(task).collect()
        except (Py4JError, PySparkException, OSError) as error:
            self.error = error
        finally:
            with suppress(Py4JError, OSError):  # the JVM may be gone
                shared.destroy()


def _attempt() -> int:
    task = TaskContext.get()
    return task.taskAttemptId() if task else 0


def _cause(error: Exception) -> str:
    """Return the line of a Java stack trace that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "failure" in line.lower() or "error" in line.lower()]
    return (causes or lines or [type(error).__name__])[0]
