"""Runs the remaining runs of a plan on Spark: one task for each bin, exactly one row for each run."""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
from endive.pipeline.plan import Bin, Plan, Run
from endive.pipeline.task import SweepJob, TaskReport, run_bin

POLL_S = 0.25

REMEDY = "repeat the same command: finished runs are kept"

RunProgress = Callable[[int, float], None]
"""Called with the number of finished runs, and their estimated cost in seconds."""


class _TaskErrors(AccumulatorParam[list[ResultError]]):
    """Errors that stopped tasks. An accumulator reaches the Spark driver when a task ends, not when all have ended."""

    def zero(self, value: list[ResultError]) -> list[ResultError]:  # noqa: ARG002 - Spark's interface
        return []

    def addInPlace(self, value1: list[ResultError], value2: list[ResultError]) -> list[ResultError]:  # noqa: N802
        return value1 + value2


def execute(
    plan: Plan,
    directory: SweepDirectory,
    done: Collection[Run],
    spark: SparkSession,
    progress: RunProgress | None = None,
) -> Mapping[str, int]:
    """Do every run of the plan that is not in `done`; return how many were done, failed or crashed.

    `directory` has been prepared for the plan. Finished bins survive any interruption. Raises `ResultError` if the
    directory cannot be written, and `SparkUnavailableError` if Spark gives up.
    """
    runs = plan.remaining(done)
    if not runs:
        return {}
    job = sweep_job(plan, directory, plan.bins(runs, spark.sparkContext.defaultParallelism))
    make_directory(job.markers)
    try:
        reports = _SparkJob(spark.sparkContext, job).run(lambda: _report_progress(job, progress))
    finally:
        rmtree(job.markers, ignore_errors=True)
    return sum((Counter(report.statuses) for report in reports), Counter())


def sweep_job(plan: Plan, directory: SweepDirectory, bins: Sequence[Bin]) -> SweepJob:
    """Return the input of the tasks that do these bins."""
    needed = {experiment for one in bins for experiment, _ in one.runs}
    configurations = {
        name: (settings.text, str(Path(settings.source).absolute()))
        for name, settings in plan.settings.items()
        if name in needed
    }
    return SweepJob(directory.path, plan.keep, configurations, bins, secrets.token_hex(4))


def _report_progress(job: SweepJob, progress: RunProgress | None) -> None:
    if progress:
        directory = SweepDirectory(job.directory)
        names = {path.name for path in directory.parts.iterdir()}
        finished = [one for number, one in enumerate(job.bins) if directory.part(job.start, number).name in names]
        progress(sum(len(one.runs) for one in finished), sum(one.seconds for one in finished))


@dataclass
class _SparkJob:
    """One Spark job in a thread of its own: the main thread handles Ctrl-C and progress."""

    context: SparkContext
    job: SweepJob
    reports: list[TaskReport] = field(default_factory=list)
    error: Exception | None = None

    def run(self, report_progress: Callable[[], None]) -> list[TaskReport]:
        """Run the job and call `report_progress` regularly. An error or an interruption cancels the waiting tasks."""
        task_errors = self.context.accumulator([], _TaskErrors())
        thread = InheritableThread(target=lambda: self._collect(task_errors), daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not task_errors.value:
                thread.join(POLL_S)
                report_progress()
        finally:
            if thread.is_alive():
                self.context.cancelJobGroup(self.job.start)
        if task_errors.value:
            raise task_errors.value[0]
        if self.error:
            raise SparkUnavailableError(f"Spark gave up: {_cause(self.error)}", REMEDY) from self.error
        return self.reports

    def _collect(self, task_errors: Accumulator[list[ResultError]]) -> None:
        shared = self.context.broadcast(self.job)

        def task(number: int) -> TaskReport:
            report = run_bin(shared.value, number, _attempt())
            if report.error:
                task_errors.add([report.error])
            return report

        numbers = range(len(self.job.bins))
        self.context.setJobGroup(self.job.start, "sweep", interruptOnCancel=True)
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
    """Return the line of a Java stack trace that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "failure" in line.lower() or "error" in line.lower()]
    return (causes or lines or [type(error).__name__])[0]
