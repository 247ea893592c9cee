"""Spark SQL on a directory and on a bucket alone: a session through everything that Iceberg's Spark runtime offers.

The bucket is SeaweedFS with keys, which Spark, PyIceberg, Polars and DuckDB use themselves for the tables' files.
"""
# ruff: noqa: S608 - statements with numbers of our own

import importlib.resources
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from endive.catalog import KVCatalog
from endive.cli.spark_sql import statements
from endive.errors import SparkUnavailableError
from endive.server import RunningServer, serve_in_background
from endive.spark.sql import packages, settings_at_start, sql_session
from tests.pyspark_sockets import close_sockets_of_pyspark
from tests.servers.conftest import KNOWN_KEYS, keyed_bucket, locked_s3_endpoint

__all__ = ["keyed_bucket", "locked_s3_endpoint"]

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")
close_sockets_of_pyspark()


def test_statements_are_split_outside_quotes_and_comments() -> None:
    text = 'SELECT \';\' ; -- a; b\nSELECT `x;y` /* ; */, "it\\"s;";\n ; SELECT 3'

    assert list(statements(text)) == [
        "SELECT ';'",
        '-- a; b\nSELECT `x;y` /* ; */, "it\\"s;"',
        "SELECT 3",
    ]


def test_the_settings_of_the_start_have_no_secret() -> None:
    assert packages("/tmp/lake").count(",") == 0  # noqa: S108
    assert "iceberg-aws-bundle" in packages("s3://bucket/lake")
    assert not any(key.endswith(".token") for key in settings_at_start("lake", "s3://bucket/lake"))


@dataclass(frozen=True)
class Lake:
    """Where a catalog is, and how its files are reached."""

    url: str
    properties: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module", params=["directory", "seaweedfs"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    if request.param == "directory":
        yield Lake(str(tmp_path_factory.mktemp("spark") / "lake"))
        return
    endpoint = request.getfixturevalue("keyed_bucket")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KNOWN_KEYS.items():
            patch.setenv(name, value)
        yield Lake("s3://keyed/spark", {"s3.endpoint": endpoint, "s3.region": KNOWN_KEYS["AWS_REGION"]})


@pytest.fixture(scope="module")
def spark(lake: Lake) -> Iterator[SparkSession]:
    try:
        few = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
        with sql_session(lake.url, properties=lake.properties, master="local[2]", settings=few) as session:
            session.sql("USE lake")
            session.sql("CREATE NAMESPACE db")
            yield session
    except SparkUnavailableError as error:
        if "unresolved" not in str(error).lower():
            raise
        pytest.skip(f"Iceberg's Spark runtime cannot be fetched from Maven: {error.problem}")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(query).collect())


@pytest.mark.campaign
def test_rows_are_inserted_merged_updated_and_deleted(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE db.t (id BIGINT, name STRING, ts TIMESTAMP) PARTITIONED BY (days(ts), bucket(2, id))")
    spark.sql("INSERT INTO db.t VALUES (1, 'a', timestamp'2026-01-01'), (2, 'b', timestamp'2026-01-02')")
    spark.sql(
        "MERGE INTO db.t USING (SELECT 2 AS id, 'B' AS name UNION ALL SELECT 3, 'c') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name "
        "WHEN NOT MATCHED THEN INSERT (id, name, ts) VALUES (s.id, s.name, timestamp'2026-01-03')"
    )
    assert rows(spark, "SELECT id, name FROM db.t") == [(1, "a"), (2, "B"), (3, "c")]
    spark.sql("UPDATE db.t SET name = upper(name) WHERE id = 1")
    spark.sql("DELETE FROM db.t WHERE id = 3")
    assert rows(spark, "SELECT id, name FROM db.t") == [(1, "A"), (2, "B")]


@pytest.mark.campaign
def test_rows_are_deleted_by_delete_files_and_by_deletion_vectors(spark: SparkSession) -> None:
    for version in (2, 3):
        spark.sql(
            f"CREATE TABLE db.mor{version} (id BIGINT) TBLPROPERTIES ('format-version'='{version}', "
            "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
        )
        spark.sql(f"INSERT INTO db.mor{version} SELECT id FROM range(10)")
        spark.sql(f"DELETE FROM db.mor{version} WHERE id % 2 = 0")
        spark.sql(f"UPDATE db.mor{version} SET id = 70 WHERE id = 7")
        assert rows(spark, f"SELECT * FROM db.mor{version}") == [(1,), (3,), (5,), (9,), (70,)]
    assert rows(spark, "SELECT count(*) FROM db.mor3.delete_files") >= [(1,)]


@pytest.mark.campaign
def test_tables_are_created_from_queries_and_replaced(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE db.ctas AS SELECT id, id * 2 AS double FROM range(5)")
    assert rows(spark, "SELECT sum(double) FROM db.ctas") == [(20,)]
    spark.sql("CREATE OR REPLACE TABLE db.ctas AS SELECT 1 AS one")
    assert rows(spark, "SELECT * FROM db.ctas") == [(1,)]
    spark.sql("REPLACE TABLE db.ctas AS SELECT 2 AS two")
    assert rows(spark, "SELECT * FROM db.ctas") == [(2,)]
    assert len(rows(spark, "SELECT snapshot_id FROM db.ctas.snapshots")) == 3
    spark.sql("ALTER TABLE db.ctas RENAME TO db.renamed")
    spark.sql("DROP TABLE db.renamed PURGE")
    assert not spark.catalog.tableExists("lake.db.renamed")


@pytest.mark.campaign
def test_schemas_partitions_and_properties_evolve(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE db.e (id INT, old STRING)")
    spark.sql("INSERT INTO db.e VALUES (1, 'x')")
    spark.sql("ALTER TABLE db.e ADD COLUMN extra DOUBLE")
    spark.sql("ALTER TABLE db.e RENAME COLUMN old TO new")
    spark.sql("ALTER TABLE db.e ALTER COLUMN id TYPE BIGINT")
    spark.sql("ALTER TABLE db.e ADD PARTITION FIELD bucket(4, id)")
    spark.sql("ALTER TABLE db.e WRITE ORDERED BY id")
    spark.sql("ALTER TABLE db.e SET TBLPROPERTIES ('a'='1', 'b'='2')")
    spark.sql("ALTER TABLE db.e UNSET TBLPROPERTIES ('a', 'never')")
    spark.sql("INSERT INTO db.e VALUES (2, 'y', 0.5)")
    assert rows(spark, "SELECT id, new, extra FROM db.e WHERE id > 1") == [(2, "y", 0.5)]
    properties = dict(rows(spark, "SHOW TBLPROPERTIES db.e"))
    assert (properties.get("a"), properties.get("b")) == (None, "2")


@pytest.mark.campaign
def test_the_past_and_branches_can_be_read(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE db.past (n INT)")
    spark.sql("INSERT INTO db.past VALUES (1)")
    first = spark.sql("SELECT snapshot_id FROM db.past.snapshots").first()
    assert first is not None
    spark.sql("INSERT INTO db.past VALUES (2)")
    assert rows(spark, f"SELECT * FROM db.past VERSION AS OF {first[0]}") == [(1,)]
    spark.sql("ALTER TABLE db.past CREATE BRANCH audit")
    spark.sql("ALTER TABLE db.past CREATE TAG march RETAIN 30 DAYS")
    spark.sql("INSERT INTO db.past.branch_audit VALUES (3)")
    assert rows(spark, "SELECT * FROM db.past") == [(1,), (2,)]
    assert rows(spark, "SELECT * FROM db.past VERSION AS OF 'audit'") == [(1,), (2,), (3,)]
    spark.sql("CALL lake.system.fast_forward('db.past', 'main', 'audit')")
    assert rows(spark, "SELECT * FROM db.past") == [(1,), (2,), (3,)]
    spark.sql(f"CALL lake.system.rollback_to_snapshot('db.past', {first[0]})")
    assert rows(spark, "SELECT * FROM db.past") == [(1,)]
    assert {name for name, *_ in rows(spark, "SELECT name FROM db.past.refs")} == {"main", "audit", "march"}
    assert len(rows(spark, "SELECT made_current_at FROM db.past.history")) == 4


@pytest.mark.campaign
def test_procedures_maintain_a_table(spark: SparkSession, lake: Lake) -> None:
    spark.sql("CREATE TABLE db.small (n INT)")
    for number in range(6):
        spark.sql(f"INSERT INTO db.small VALUES ({number})")
    done = spark.sql("CALL lake.system.rewrite_data_files('db.small', 'binpack', null, map('min-input-files', '2'))")
    assert (done.first() or [0])[0] == 6
    spark.sql("CALL lake.system.rewrite_manifests('db.small')")
    spark.sql("CALL lake.system.expire_snapshots(table => 'db.small', older_than => now(), retain_last => 1)")
    spark.sql("CALL lake.system.remove_orphan_files(table => 'db.small', dry_run => true, prefix_listing => true)")
    assert rows(spark, "SELECT * FROM db.small") == [(number,) for number in range(6)]
    assert len(rows(spark, "SELECT snapshot_id FROM db.small.snapshots")) == 1
    with KVCatalog.open(lake.url, properties=lake.properties) as catalog:
        assert len(catalog.plan_files("db.small")) == 1


@pytest.mark.campaign
def test_views_are_created_and_queried(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE db.base AS SELECT id FROM range(4)")
    spark.sql("CREATE VIEW db.even AS SELECT id FROM db.base WHERE id % 2 = 0")
    assert rows(spark, "SELECT * FROM db.even") == [(0,), (2,)]
    spark.sql("CREATE OR REPLACE VIEW db.even AS SELECT id + 1 AS id FROM db.base WHERE id % 2 = 0")
    assert rows(spark, "SELECT * FROM db.even") == [(1,), (3,)]
    assert "even" in {row["viewName"] for row in spark.sql("SHOW VIEWS IN lake.db").collect()}
    spark.sql("DROP VIEW db.even")


@pytest.mark.campaign
def test_streams_read_and_write(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("CREATE TABLE db.source AS SELECT id FROM range(7)")
    spark.sql("CREATE TABLE db.sink (id BIGINT)")
    for _ in range(2):
        stream = spark.readStream.table("lake.db.source").writeStream.trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable("lake.db.sink").awaitTermination()
        spark.sql("INSERT INTO db.source VALUES (7)")
    assert rows(spark, "SELECT count(*) FROM db.sink") == [(8,)]


@pytest.mark.campaign
def test_every_client_writes_and_all_read_the_same_rows(spark: SparkSession, lake: Lake) -> None:
    spark.sql("CREATE TABLE db.shared AS SELECT id, concat('n', id) AS name FROM range(100)")
    spark.sql("DELETE FROM db.shared WHERE id < 10")
    expected = [(number, f"n{number}") for number in range(10, 100)]
    opened = KVCatalog.open(lake.url, properties=lake.properties)
    with opened as catalog, serve_in_background(catalog) as server, duckdb_on(server, lake) as duck:
        given = {"uri": lake.url, **lake.properties}
        rest = load_catalog("lake", type="rest", **server.client_properties)
        plug_in = load_catalog("lake", **{"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog"}, **given)
        one_more = pa.table({"id": [100], "name": ["PyIceberg"]})

        def through_pyiceberg() -> None:
            rest.load_table("db.shared").append(one_more)

        def through_polars() -> None:
            pl.DataFrame({"id": [101], "name": ["Polars"]}).write_iceberg(rest.load_table("db.shared"), mode="append")

        writers: dict[tuple[int, str], Callable[[], object]] = {
            (100, "PyIceberg"): through_pyiceberg,
            (101, "Polars"): through_polars,
            (102, "DuckDB"): lambda: duck.execute("INSERT INTO lake.db.shared VALUES (102, 'DuckDB')"),
            (103, "plug-in"): lambda: plug_in.load_table("db.shared").append(
                pa.table({"id": [103], "name": ["plug-in"]})
            ),
            (104, "Spark"): lambda: spark.sql("INSERT INTO db.shared VALUES (104, 'Spark')"),
        }
        readers: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
            "Spark": lambda: rows(spark, "SELECT * FROM db.shared"),
            "PyIceberg": lambda: _tuples(rest.load_table("db.shared").scan().to_arrow()),
            "Polars": lambda: (
                pl.scan_iceberg(rest.load_table("db.shared"), storage_options=lake.properties).collect().rows()
            ),
            "plug-in": lambda: _tuples(plug_in.load_table("db.shared").scan().to_arrow()),
            "DuckDB": lambda: duck.execute("SELECT * FROM lake.db.shared").fetchall(),
        }
        for row, write in writers.items():
            write()
            expected.append(row)
            assert {name: sorted(read()) for name, read in readers.items()} == dict.fromkeys(readers, expected)
        assert catalog.check() == []


def _tuples(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@contextmanager
def duckdb_on(server: RunningServer, lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB that has the tables of a server under `lake`, and keys of its own for their files."""
    with duckdb.connect() as database:
        for name in ("httpfs", "avro", "iceberg"):
            package = importlib.resources.files(f"duckdb_extension_{name}")
            database.execute(f"LOAD '{package}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
        if lake.properties:
            endpoint, keys = lake.properties["s3.endpoint"].removeprefix("http://"), KNOWN_KEYS
            database.execute(
                f"CREATE SECRET (TYPE s3, KEY_ID '{keys['AWS_ACCESS_KEY_ID']}', "
                f"SECRET '{keys['AWS_SECRET_ACCESS_KEY']}', REGION '{keys['AWS_REGION']}', "
                f"ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)"
            )
        options = f"TYPE iceberg, ENDPOINT '{server.url}', TOKEN '{server.token}', ACCESS_DELEGATION_MODE 'none'"
        database.execute(f"ATTACH '' AS lake ({options})")
        yield database
