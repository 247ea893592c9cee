"""Reads a snapshot's files with Spark's own Parquet reader, which prunes columns and row groups.

The catalog plans the files, Spark reads them. Columns are matched by field id, so files written before a rename are
read correctly. Tables that Spark's reader would read wrongly are refused: those with delete files, and those with
values that are in the metadata, not in the files.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from endive.errors import ConfigurationError
from endive.spark.source.data_source import FIELD_IDS
from endive.spark.source.options import ReadOptions, place_of
from endive.spark.source.scanning import planned
from endive.spark.source.types import FIELD_ID, struct_of
from endive.spark.source.views import View, view_of

INSTEAD = "read it with format('endive')"


def read_native(
    spark: SparkSession,
    catalog_url: str,
    table: str,
    snapshot_id: int | None = None,
    filter: str | None = None,  # noqa: A002 - the option's name
) -> DataFrame:
    """Return a snapshot of a table, by default the newest, as a frame over its Parquet files.

    `filter` is a condition such as `day = '2026-11-16' and n > 3`. It selects files by their partitions and bounds,
    and Spark applies it to the rows. `ConfigurationError`: only `format("endive")` can read the table. Object stores
    need Spark's own connector, which is not part of PySpark.
    """
    place = place_of({"catalog": catalog_url, "path": table})
    with place.table() as opened:
        view = view_of(opened, ReadOptions(snapshot_id=snapshot_id))
    tasks = planned(view, AlwaysTrue() if filter is None else parse(filter))
    errors = list(dict.fromkeys(_unsupported(view, tasks)))
    if errors:
        raise ConfigurationError(view.name, errors)
    schema = struct_of(view.schema, view.name, with_field_ids=True)
    if not tasks:
        return spark.createDataFrame([], schema)
    spark.conf.set(FIELD_IDS, "true")
    paths = [_spark_path(task.file.file_path) for task in tasks]
    frame = _frame(spark, schema, paths, renamed=len(view.metadata.schemas) > 1)
    return frame if filter is None else frame.where(filter)


def _frame(spark: SparkSession, schema: StructType, paths: list[str], renamed: bool) -> DataFrame:
    """Return the files' columns; `renamed`: the table has had other schemas, so files may have other names.

    If a file lacks a field id, Spark 4.1 takes a column with the requested name, whatever its id. So the frame requests
    names that no file has, and renames the columns afterwards.
    """
    # A path may hold characters that Spark would take for a pattern.
    reader = spark.read.option("__globPaths__", "false")
    if not renamed:
        return reader.schema(schema).parquet(*paths)
    asked = _by_id(schema)
    frame = reader.schema(asked).parquet(*paths)
    columns = []
    for field, wanted in zip(asked.fields, schema.fields, strict=True):
        column = frame[field.name]
        nested = isinstance(wanted.dataType, StructType | ArrayType | MapType)
        columns.append((column.cast(wanted.dataType) if nested else column).alias(wanted.name))
    return frame.select(*columns)


Kind = TypeVar("Kind", bound=DataType)


def _by_id(kind: Kind) -> Kind:
    """Return a type whose fields, on every level, are named by their ids."""
    named: DataType = kind
    match kind:
        case StructType():
            named = StructType([_field_by_id(field) for field in kind.fields])
        case ArrayType():
            named = ArrayType(_by_id(kind.elementType), kind.containsNull)
        case MapType():
            named = MapType(_by_id(kind.keyType), _by_id(kind.valueType), kind.valueContainsNull)
    return cast("Kind", named)


def _field_by_id(field: StructField) -> StructField:
    return StructField(f"field-{field.metadata[FIELD_ID]}", _by_id(field.dataType), field.nullable, field.metadata)


def _unsupported(view: View, tasks: Iterable[FileScanTask]) -> Iterator[str]:
    defaults = [field.name for field in view.schema.fields if field.initial_default is not None]
    if defaults:
        yield f"older files lack the columns {', '.join(defaults)}, whose values are in the metadata; {INSTEAD}"
    for task in tasks:
        if task.delete_files:
            yield f"it has delete files, which Spark's Parquet reader does not know; {INSTEAD}"
        if task.file.file_format != "PARQUET":
            yield f"it has {task.file.file_format} files; {INSTEAD}"
        for name in _only_in_metadata(view, task.file):
            yield f"column {name!r} is in the partitions' values, not in the files; {INSTEAD}"


def _only_in_metadata(view: View, file: DataFile) -> Iterator[str]:
    """Yield partition columns that a file lacks according to its value counts, as files of Hive tables do."""
    counted = file.value_counts or {}
    for part in view.metadata.specs()[file.spec_id].fields:
        if isinstance(part.transform, IdentityTransform) and counted and part.source_id not in counted:
            yield str(view.schema.find_column_name(part.source_id))


def _spark_path(location: str) -> str:
    """Return a location as Spark takes it: a local path as it is, one of S3 by the name of its connector."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return f"file://{unquote(parts.path)}"
    return location.replace("s3://", "s3a://", 1) if parts.scheme == "s3" else location
