"""Spark: a Java and a session that work, and the data source `endive` for the tables of a catalog.

with spark_session() as spark:                       # or your own session: use(spark)
spark.read.format("endive").option("catalog", url).load("db.table")
read_native(spark, url, "db.table")              # a scan by Spark's own Parquet reader
with sql_session(url) as spark:                      # Spark SQL with Iceberg's own runtime: lake.db.table
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from endive.spark.session import spark_session
    from endive.spark.source.data_source import EndiveSource, register
    from endive.spark.source.native import read_native
    from endive.spark.sql import catalog, sql_session
    from endive.spark.using import use

__all__ = ["EndiveSource", "catalog", "read_native", "register", "spark_session", "sql_session", "use"]

_MODULES = {
    "EndiveSource": "source.data_source",
    "catalog": "sql",
    "register": "source.data_source",
    "read_native": "source.native",
    "sql_session": "sql",
    "use": "using",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    """Load PySpark and PyIceberg only when a public name is used: a Spark worker needs some modules alone."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"endive.spark.{_MODULES.get(name, 'session')}"), name)
