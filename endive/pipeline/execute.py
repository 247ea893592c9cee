"""Runs the remaining runs of a plan on Spark: one task for each bin, exactly one row for each run."""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import Accumulator, AccumulatorParam, InheritableThread, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from endive.errors import ResultError, SparkUnavailableError
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Bin, Plan, Run
from endive.pipeline.table_files import Files, TableFiles
from endive.pipeline.task import SweepJob, TaskReport, run_bin
from endive.spark.naming import named

POLL_S = 0.25

REMEDY = "repeat the same command: finished runs are kept"


@dataclass(frozen=True)
class Finished:
    """The bins that have finished so far."""

    parts: Sequence[str]
    """Their files in the directory."""
    files: Mapping[int, Files]
    """Their data files, by bin, if the sweep lives in tables alone."""
    runs: int
    seconds: float
    """Their estimated cost."""


RunProgress = Callable[[Finished], None]


class _TaskReports(AccumulatorParam[dict[int, TaskReport]]):
    """Reports by bin. An accumulator reaches the Spark driver when a task ends, not when all have ended.

    Spark may add the report of a repeated task again: by number, it counts once.
    """

    def zero(self, value: dict[int, TaskReport]) -> dict[int, TaskReport]:  # noqa: ARG002 - Spark's interface
        return {}

    def addInPlace(  # noqa: N802
        self, value1: dict[int, TaskReport], value2: dict[int, TaskReport]
    ) -> dict[int, TaskReport]:
        return value1 | value2


@dataclass(frozen=True)
class Executed:
    """What a start of a sweep has done."""

    statuses: Mapping[str, int] = field(default_factory=dict)
    """How many runs were done, failed or crashed."""
    parts: Sequence[str] = ()
    """The files that it wrote. A listing may not show them yet."""


def execute(
    plan: Plan,
    directory: SweepDirectory,
    done: Collection[Run],
    spark: SparkSession,
    progress: RunProgress | None = None,
    tables: TableFiles | None = None,
) -> Executed:
    """Do every run of the plan that is not in `done`.

    `directory` has been prepared for the plan; with `tables` the rows go there, and `progress` commits them. Finished
    bins survive any interruption. Raises `ResultError` if the directory cannot be written, and `SparkUnavailableError`
    if Spark gives up.
    """
    rounds = _Rounds(plan, progress, is_in_directory=tables is None)
    runs = plan.remaining(done)
    while runs:
        bins = plan.bins(runs, spark.sparkContext.defaultParallelism, rounds.factor)
        job = sweep_job(plan, directory, bins, tables, rounds.bins)
        try:
            rounds.add(job, _SparkJob(spark.sparkContext, job).run(partial(rounds.show, job)))
        finally:
            with suppress(ResultError):  # must not hide the outcome
                directory.delete_all(job.markers)
        runs = rounds.left
    return Executed(rounds.statuses, rounds.parts)


@dataclass
class _Rounds:
    """The Spark jobs of a sweep: one for all runs, and others for runs that tasks have given back."""

    plan: Plan
    progress: RunProgress | None
    is_in_directory: bool
    statuses: Counter[str] = field(default_factory=Counter)
    parts: list[str] = field(default_factory=list)
    left: tuple[Run, ...] = ()
    """Runs that the tasks of the last round have given back."""
    bins: int = 0
    """Bins of all rounds: the first number of the next one."""
    files: dict[int, Files] = field(default_factory=dict)
    _runs: int = 0
    _estimated_s: float = 0.0
    _measured_s: float = 0.0

    @property
    def factor(self) -> float:
        """Measured cost by estimated cost of the runs so far."""
        return self._measured_s / self._estimated_s if self._measured_s and self._estimated_s else 1.0

    def show(self, job: SweepJob, reports: Mapping[int, TaskReport]) -> None:
        """Report the bins that have finished, in the round that is running and before."""
        if self.progress:
            runs = sum(sum(report.statuses.values()) for report in reports.values())
            seconds = sum(self._seconds(job, report) for report in reports.values())
            files = self.files | _files_of(reports)
            parts = [*self.parts, *self._parts_of(job, reports)]
            self.progress(Finished(parts, files, self._runs + runs, self._estimated_s + seconds))

    def add(self, job: SweepJob, reports: Mapping[int, TaskReport]) -> None:
        """Add a round that has ended."""
        self.bins += len(job.bins)
        self.files |= _files_of(reports)
        self.parts += self._parts_of(job, reports)
        self.left = tuple(run for report in reports.values() for run in report.left)
        for report in reports.values():
            self.statuses += Counter(report.statuses)
            self._runs += sum(report.statuses.values())
            self._estimated_s += self._seconds(job, report)
            self._measured_s += report.cpu_s

    def _seconds(self, job: SweepJob, report: TaskReport) -> float:
        return job.bins[report.bin].seconds - self.plan.cost(report.left)

    def _parts_of(self, job: SweepJob, reports: Mapping[int, TaskReport]) -> list[str]:
        return [job.part(number) for number in sorted(reports)] if self.is_in_directory else []


def _files_of(reports: Mapping[int, TaskReport]) -> dict[int, Files]:
    return {number: report.files for number, report in reports.items() if report.files}


def sweep_job(
    plan: Plan, directory: SweepDirectory, bins: Sequence[Bin], tables: TableFiles | None = None, first: int = 0
) -> SweepJob:
    """Return the input of the tasks that do these bins, whose numbers begin with `first`."""
    needed = {experiment for one in bins for experiment, _ in one.runs}
    configurations = {
        name: (settings.text, str(Path(settings.source).absolute()))
        for name, settings in plan.settings.items()
        if name in needed
    }
    return SweepJob(directory, plan.keep, configurations, dict(enumerate(bins, first)), secrets.token_hex(4), tables)


@dataclass
class _SparkJob:
    """One Spark job in a thread of its own: the main thread handles Ctrl-C and progress."""

    context: SparkContext
    job: SweepJob
    error: Exception | None = None
    complete: dict[int, TaskReport] = field(default_factory=dict)

    def run(self, on_reports: Callable[[Mapping[int, TaskReport]], None]) -> Mapping[int, TaskReport]:
        """Run the job and call `on_reports` regularly. An error or an interruption cancels the waiting tasks."""
        reports = self.context.accumulator({}, _TaskReports())
        thread = InheritableThread(target=lambda: self._collect(reports), daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not _errors(reports.value):
                thread.join(POLL_S)
                on_reports(dict(reports.value))
        finally:
            if thread.is_alive():
                self.context.cancelJobGroup(self.job.start)
        for error in _errors(self.complete or dict(reports.value)):
            raise error
        if self.error:
            raise SparkUnavailableError(f"Spark gave up: {_cause(self.error)}", REMEDY) from self.error
        on_reports(self.complete)
        return self.complete

    def _collect(self, reports: Accumulator[dict[int, TaskReport]]) -> None:
        shared = self.context.broadcast(self.job)

        def task(number: int) -> TaskReport:
            report = run_bin(shared.value, number, _attempt())
            reports.add({number: report})
            return report

        numbers = list(self.job.bins)
        runs = sum(len(one.runs) for one in self.job.bins.values())
        title = f"sweep {self.job.name}: {runs:,} runs in {len(numbers):,} bins"
        self.context.setJobGroup(self.job.start, title, interruptOnCancel=True)
        try:
            with named(self.context, title):
                collected = self.context.parallelize(numbers, len(numbers)).setName(title).map(task).collect()
            self.complete = {report.bin: report for report in collected}
        except (Py4JError, PySparkException, OSError) as error:
            self.error = error
        finally:
            with suppress(Py4JError, OSError):  # the JVM may be gone
                shared.destroy()


def _errors(reports: Mapping[int, TaskReport]) -> list[ResultError]:
    return [report.error for report in list(reports.values()) if report.error]


def _attempt() -> int:
    task = TaskContext.get()
    return task.attemptNumber() if task else 0


def _cause(error: Exception) -> str:
    """Return the line of a Java stack trace that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "failure" in line.lower() or "error" in line.lower()]
    return (causes or lines or [type(error).__name__])[0]
