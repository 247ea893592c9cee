"""Compaction of data files by Iceberg's procedures, in a session of `endive.spark.sql_session`."""

from typing import NamedTuple

from pyspark.sql import SparkSession


class Rewritten(NamedTuple):
    """Files that a procedure has replaced, and those that it has written instead."""

    before: int = 0
    after: int = 0


def rewrite_data_files(spark: SparkSession, catalog: str, table: tuple[str, ...]) -> Rewritten:
    """Merge small data files of a table and split large ones, with the defaults of Iceberg's procedure."""
    return _called(spark, catalog, "rewrite_data_files", table, "data")


def rewrite_delete_files(spark: SparkSession, catalog: str, table: tuple[str, ...]) -> Rewritten:
    """Merge small position delete files of a table, and drop deletes of rows that no longer exist."""
    return _called(spark, catalog, "rewrite_position_delete_files", table, "delete")


def _called(spark: SparkSession, catalog: str, procedure: str, table: tuple[str, ...], kind: str) -> Rewritten:
    row = spark.sql(f"CALL {_quoted(catalog)}.system.{procedure}(table => {_text(table)})").first()
    if row is None:
        return Rewritten()
    return Rewritten(row[f"rewritten_{kind}_files_count"], row[f"added_{kind}_files_count"])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(table: tuple[str, ...]) -> str:
    """Return a table's name as a text of Spark SQL, which the procedure parses again."""
    name = ".".join(map(_quoted, table))
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
