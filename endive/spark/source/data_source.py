"""The data source `endive`: Spark reads and writes the tables of a catalog.

    spark.read.format("endive").option("catalog", url).load("db.table")
    frame.write.format("endive").option("catalog", url).mode("append").save("db.table")

Spark creates these objects in processes of its own: one for the schema, one to plan a read, one to plan a write, one to
commit it. They share only pickled objects. PyIceberg is imported where it is needed, so that registering the source
does not load it in every session.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from endive.spark.source.views import View

FORMAT = "endive"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"

SETTINGS = {PUSHDOWN: "true", FIELD_IDS: "true"}
"""Settings that a session needs: filters for the source, and field ids for `read_native`."""


class EndiveSource(DataSource):
    """Tables of a catalog, by `load("db.table")` and `save("db.table")`. docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the table's columns, and fix the snapshot that the frame reads."""
        from endive.spark.source.options import read_options  # noqa: PLC0415 - see above
        from endive.spark.source.types import struct_of  # noqa: PLC0415

        view = self._view()
        self._fixed_view = view
        return struct_of(view.projected(read_options(self.options).columns), view.name)

    def _view(self) -> "View":
        from endive.spark.source.options import place_of, read_options  # noqa: PLC0415
        from endive.spark.source.views import view_of  # noqa: PLC0415

        place, options = place_of(self.options), read_options(self.options)
        with place.table() as table:
            return view_of(table, options)

    def reader(self, schema: StructType) -> "EndiveReader":
        """Return a reader of these columns."""
        from endive.spark.source.options import read_options  # noqa: PLC0415

        options = read_options(self.options)
        kind = PushingReader if options.push_filters else EndiveReader
        return kind(getattr(self, "_fixed_view", None) or self._view(), options.row_filter, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of appended rows."""
        from endive.spark.source.options import place_of, read_options  # noqa: PLC0415
        from endive.spark.source.streaming import SnapshotReader  # noqa: PLC0415

        return SnapshotReader(place_of(self.options), read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer of one job."""
        from endive.spark.source.options import place_of, write_options  # noqa: PLC0415
        from endive.spark.source.writer import EndiveWriter  # noqa: PLC0415

        return EndiveWriter(place_of(self.options), write_options(self.options, overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return a writer of batches, each committed exactly once."""
        from endive.spark.source.options import place_of, write_options  # noqa: PLC0415
        from endive.spark.source.streaming import BatchWriter  # noqa: PLC0415

        return BatchWriter(place_of(self.options), write_options(self.options, overwrite), schema)


class EndiveReader(DataSourceReader):
    """Reads one snapshot of a table, or the rows of it that match the option `filter`."""

    def __init__(self, view: "View", row_filter: "BooleanExpression", struct: StructType) -> None:
        self._view = view
        self._row_filter = row_filter
        self._struct = struct

    def partitions(self) -> list[InputPartition]:
        """Return the files to read, distributed to tasks."""
        from endive.spark.source.scanning import partitions, planned, shape_of  # noqa: PLC0415

        shape = shape_of(self._view, self._struct, self._row_filter)
        return [*partitions(self._view, shape, planned(self._view, self._row_filter))]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the files of one task. None: there are none at all."""
        return iter(()) if partition is None else partition.batches()  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, object]:
        """Leave out the view: only the process that plans uses it, and a partition has all that a task needs."""
        return {name: value for name, value in self.__dict__.items() if name != "_view"}


class PushingReader(EndiveReader):
    """Also pushes the filters of the query, with the option `push-filters`.

    Spark 4.1 keeps the plan of a frame's first filter and uses it for every later query of that frame, and for other
    uses of it in the same query: rows are missing then. So a frame with this option must be used once.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Push the filters that files and rows support; Spark applies all of them again, see `filters`."""
        from pyiceberg.expressions import And  # noqa: PLC0415

        from endive.spark.source.filters import pushed  # noqa: PLC0415

        self._row_filter = And(self._row_filter, pushed(filters, self._view.schema))
        return filters


def register(spark: SparkSession) -> None:
    """Register the format `endive` with a session, for the calling thread.

    `spark_session` registers it in its own thread. Spark looks for sources in the session of the calling thread: call
    this in every other thread that reads or writes.
    """
    from endive.spark.source.refusing import refuse_created_tables  # noqa: PLC0415 - not needed in Spark's processes

    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    spark.dataSource.register(EndiveSource)
    refuse_created_tables()
    jvm = spark.sparkContext._gateway.jvm  # type: ignore[union-attr]
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
