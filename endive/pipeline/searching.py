"""Searches for capacities on Spark: each seed of each case is a task, in rounds.

The first round has the first seed of every case, the second all other seeds, which begin at the first one's answer. A
search is the same function as on one machine, so the answers are the same.
"""

import queue
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import AccumulatorParam, InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from endive.errors import SparkUnavailableError
from endive.sim.results.capacity import SeedCapacity
from endive.sim.results.capacity_search import SearchTask, Spread
from endive.spark.naming import named

POLL_S = 0.25

Answers = dict[int, SeedCapacity]
"""By the number of the task, so that a task that Spark repeats counts once."""


class _Answers(AccumulatorParam[Answers]):
    """Answers as they arrive: an accumulator reaches the Spark driver when a task ends, not when all have ended."""

    def zero(self, value: Answers) -> Answers:  # noqa: ARG002 - Spark's interface
        return {}

    def addInPlace(self, value1: Answers, value2: Answers) -> Answers:  # noqa: N802
        return value1 | value2


def on_spark(spark: SparkSession) -> Spread:
    """Return a way to run searches on the executors of a session, for `endive.capacity(spread=…)`."""

    def spread(tasks: Sequence[SearchTask]) -> Iterator[tuple[SearchTask, SeedCapacity]]:
        for number, answer in _answers(spark, tasks):
            yield tasks[number], answer

    return spread


def _answers(spark: SparkSession, tasks: Sequence[SearchTask]) -> Iterator[tuple[int, SeedCapacity]]:
    context, group = spark.sparkContext, f"search-{secrets.token_hex(4)}"
    arrived = context.accumulator({}, _Answers())
    ended: queue.Queue[Answers | Exception] = queue.Queue()

    def run(numbered: tuple[int, SearchTask]) -> tuple[int, SeedCapacity]:
        number, task = numbered
        answer = task.run()
        arrived.add({number: answer})
        return number, answer

    def collect() -> None:
        title = f"capacity: {len(tasks)} searches"
        context.setJobGroup(group, title, interruptOnCancel=True)
        try:
            with named(context, title):
                ended.put(dict(context.parallelize(list(enumerate(tasks)), len(tasks)).map(run).collect()))
        except (Py4JError, PySparkException, OSError) as error:
            ended.put(error)

    InheritableThread(target=collect, daemon=True).start()
    yielded: set[int] = set()
    outcome: Answers | Exception | None = None
    try:
        while outcome is None:
            with suppress(queue.Empty):
                outcome = ended.get(timeout=POLL_S)
            known = outcome if isinstance(outcome, dict) else dict(arrived.value)
            for number in known.keys() - yielded:
                yielded.add(number)
                yield number, known[number]
    finally:
        if outcome is None:
            context.cancelJobGroup(group)
    if isinstance(outcome, Exception):
        raise SparkUnavailableError(f"Spark gave up: {str(outcome).splitlines()[0]}", "repeat the command") from outcome
