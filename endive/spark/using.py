"""Your own Spark session: a PySpark shell, a notebook, a managed platform. No JVM is started.

import endive, endive.spark

endive.spark.use(spark)
results = endive.sweep("configs/sweeps/small.toml", "s3://bucket/sweeps/small")
results.frame("curves").show()
spark.read.format("endive").option("catalog", url).load("db.table")
"""

from pyspark import SparkContext
from pyspark.sql import SparkSession

from endive.errors import ConfigurationError, SparkUnavailableError
from endive.spark.master import parse_master
from endive.spark.source import data_source as tables

_chosen: list[SparkSession] = []
"""The session that `use` was called with last; at most one."""


def use(spark: SparkSession) -> SparkSession:
    """Prepare a session for sweeps and tables, and return it. Idempotent; call it in every thread that reads tables.

    It registers the format `endive`, and sweeps of this process run in the session from now on. The executors' Python
    needs the package. Settings that only a new session can have are those of the session: its Python workers load the
    engine themselves, a few seconds for each. `SparkUnavailableError` for a session that has ended.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigurationError("spark", ["a session of Spark Connect has no sparkContext, which sweeps need"])
    if spark.sparkContext._jsc is None:
        raise SparkUnavailableError("the Spark session has ended", "start another one, and call `use` with it")
    tables.register(spark)
    _chosen[:] = [spark]
    return spark


def running_session(master: str | None = None) -> SparkSession | None:
    """Return the session that this process has: that of `use`, or the active one; None if there is none.

    `ConfigurationError` if it is not on `master`.
    """
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    if master is not None and parse_master(master).url != context.master:
        problem = f"this process already has a Spark session on {context.master}; end it first"
        raise ConfigurationError(f"master {master!r}", [problem])
    spark = next((one for one in _chosen if one.sparkContext is context), None)
    return use(spark or SparkSession.builder.getOrCreate())
