"""A catalog in a directory, and the data source on it: on Spark, or called as Spark calls it but in this process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from endive.spark.source.committing import Written
from endive.spark.source.data_source import EndiveReader, EndiveSource
from endive.spark.source.options import place_of, write_options
from endive.spark.source.types import arrow_schema
from endive.spark.source.writer import EndiveWriter
from endive.spark.source.writing import write_rows

ATTEMPTS = count()

SIMPLE = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))


@dataclass
class Lake:
    """A catalog with the namespace `db`."""

    path: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    """More options for every use."""

    @property
    def url(self) -> str:
        return self.path.as_uri()

    @property
    def options(self) -> dict[str, str]:
        return {"catalog": self.url, **self.extra}

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        place = place_of({**self.options, "path": "db.t"})
        own = {} if "type" in place.properties else {"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog"}
        with load_catalog("endive", **own, **place.properties) as catalog:
            yield catalog

    def create(
        self,
        name: str = "db.t",
        schema: Schema = SIMPLE,
        by: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create a table; `by` has transforms by column."""
        spec = UNPARTITIONED_PARTITION_SPEC
        if by:
            spec = PartitionSpec(
                *(
                    PartitionField(
                        schema.find_field(column).field_id, 1000 + n, parse_transform(transform), f"{column}_{n}"
                    )
                    for n, (column, transform) in enumerate(by.items())
                )
            )
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists("db")
            return catalog.create_table(name, schema, partition_spec=spec, properties=dict(properties or {}))

    @contextmanager
    def table(self, name: str = "db.t") -> Iterator[Table]:
        with self.catalog() as catalog:
            yield catalog.load_table(name)

    def rows(self, name: str = "db.t", branch: str = "main") -> list[dict[str, Any]]:
        """The table's rows as PyIceberg reads them, sorted."""
        with self.table(name) as table:
            scan = table.scan()
            if table.current_snapshot() is None and branch == "main":
                return []
            rows: list[dict[str, Any]] = scan.use_ref(branch).to_arrow().to_pylist()
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])

    def ids(self, name: str = "db.t") -> list[int]:
        return sorted(row["id"] for row in self.rows(name))

    def data_files(self) -> set[Path]:
        """Every Parquet file there is, named by a snapshot or not."""
        return set(self.path.rglob("*.parquet"))

    def live_files(self, name: str = "db.t") -> set[str]:
        with self.table(name) as table:
            return {task.file.file_path for task in table.scan().plan_files()}

    # On Spark.

    def load(self, spark: SparkSession, name: str = "db.t", **options: str) -> DataFrame:
        named = {key.replace("_", "-"): value for key, value in options.items()}
        return spark.read.format("endive").options(**self.options, **named).load(name)

    def save(self, frame: DataFrame, name: str = "db.t", mode: str = "append", **options: str) -> None:
        named = {key.replace("_", "-"): value for key, value in options.items()}
        frame.write.format("endive").options(**self.options, **named).mode(mode).save(name)

    # As Spark calls it, in this process.

    def source(self, name: str = "db.t", **options: str) -> EndiveSource:
        named = {key.replace("_", "-"): value for key, value in options.items()}
        given: Any = CaseInsensitiveDict({**self.options, "path": name, **named})
        return EndiveSource(given)

    def reader(self, name: str = "db.t", **options: str) -> EndiveReader:
        source = self.source(name, **options)
        return source.reader(source.schema())

    def read(self, name: str = "db.t", **options: str) -> list[dict[str, Any]]:
        return read_all(self.reader(name, **options))

    def writer(self, struct: StructType, name: str = "db.t", overwrite: bool = False, **options: str) -> EndiveWriter:
        named = {key.replace("_", "-"): value for key, value in options.items()}
        place = place_of({**self.options, "path": name})
        return EndiveWriter(place, write_options(named, overwrite), struct)


def read_all(reader: EndiveReader) -> list[dict[str, Any]]:
    return [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]


def frame(**columns: str) -> StructType:
    """A frame's schema, of types by name."""
    struct = StructType()
    for name, kind in columns.items():
        struct = struct.add(name, kind)
    return struct


ROWS = frame(id="long", name="string")


def batch_of(ids: Sequence[int], struct: StructType = ROWS) -> pa.RecordBatch:
    """Rows as Spark hands them to a task."""
    return pa.RecordBatch.from_pylist([{"id": n, "name": f"n{n}"} for n in ids], schema=arrow_schema(struct))


def message_of(writer: EndiveWriter, ids: Sequence[int], partition: int = 0) -> Written:
    """What a task says that has written these rows; each call is another attempt."""
    job = writer._job
    files = write_rows(job, [batch_of(ids)], f"{partition:05}-{next(ATTEMPTS)}")
    return Written(partition, files, str(job.metadata.table_uuid), job.metadata.default_spec_id, job.write_id)


def append(lake: Lake, *ids: int) -> int:
    """Append rows as one file; return the snapshot."""
    writer = lake.writer(ROWS)
    writer.commit([message_of(writer, ids)])
    with lake.table() as table:
        head = table.metadata.current_snapshot_id
    assert head is not None
    return head
