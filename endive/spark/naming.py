"""Names what Spark runs, for its web page, its event log and the history server."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.traceback_utils import SCCallSiteSync

JOB, STAGE = "spark.job.description", "callSite.short"
"""Properties of a thread: the description of its jobs, and the name of their stages, otherwise a line of PySpark's."""


@contextmanager
def named(context: SparkContext, title: str) -> Iterator[None]:
    """Give the jobs and stages that this thread starts in the block a title; afterwards they have the names of before.

    The session may be the user's, whose own jobs must not keep our names.
    """
    before = {key: context.getLocalProperty(key) for key in (JOB, STAGE)}
    for key in before:
        context.setLocalProperty(key, title)
    # Every action of PySpark names its stages by the line that calls it, unless it is part of another action.
    SCCallSiteSync._spark_stack_depth += 1
    try:
        yield
    finally:
        SCCallSiteSync._spark_stack_depth -= 1
        with suppress(Py4JError, OSError):  # the JVM may be gone
            for key, value in before.items():
                context.setLocalProperty(key, value)  # type: ignore[arg-type] # None deletes a property
