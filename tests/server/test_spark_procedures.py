"""Spark SQL on a directory in a session of the caller's own, with Iceberg's procedures and Endive's commands.

All tests share one session, which `endive.spark.catalog` makes from a builder.
"""
# ruff: noqa: S608 - statements with names and numbers of our own

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import endive.spark
from endive.catalog import KVCatalog
from endive.cli.app import app
from endive.spark import sql
from endive.spark.java import find_java
from tests.pyspark_sockets import close_sockets_of_pyspark

pytestmark = [pytest.mark.campaign, pytest.mark.xdist_group("spark_procedures")]
close_sockets_of_pyspark()

SESSIONS: tuple[tuple[type, str], ...] = (
    (SparkContext, "_active_spark_context"),
    (SparkContext, "_gateway"),
    (SparkContext, "_jvm"),
    (SparkSession, "_instantiatedSession"),
    (SparkSession, "_activeSession"),
)
"""Where PySpark keeps the session of a process."""
MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file'"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("spark") / "lake")


@pytest.fixture(scope="module")
def spark(lake: str) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.default.parallelism", "1")
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in SESSIONS:  # a session of other tests in this process keeps its own JVM
            patch.setattr(owner, name, None)
        patch.setenv("JAVA_HOME", str(find_java().path))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        try:
            session = endive.spark.catalog(builder, "lake", lake)
        except (PySparkException, Py4JError) as error:
            if "unresolved" not in str(error).lower():
                raise
            pytest.skip(f"Iceberg's Spark runtime cannot be fetched from Maven: {error}")
        session.sql("USE lake")
        session.sql("CREATE NAMESPACE db")
        yield session
        gateway: Any = SparkContext._gateway
        session.stop()
        sql._at_exit.close()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait()


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(query).collect())


def numbers(spark: SparkSession, table: str) -> list[int]:
    return [number for (number,) in rows(spark, f"SELECT n FROM {table}")]


def create(spark: SparkSession, table: str, *numbers: int, properties: str = "") -> list[int]:
    """Create a table with a snapshot and a file for each number; return the ids of the snapshots."""
    spark.sql(f"CREATE TABLE {table} (n INT) TBLPROPERTIES ('format-version'='2'{', ' * bool(properties)}{properties})")
    for number in numbers:
        spark.sql(f"INSERT INTO {table} VALUES ({number})")
    return [row[0] for row in spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at").collect()]


def call(spark: SparkSession, text: str) -> dict[str, Any]:
    row = spark.sql(f"CALL lake.system.{text}").first()
    return row.asDict() if row is not None else {}


def test_a_table_is_read_as_of_a_time(spark: SparkSession) -> None:
    first, _ = create(spark, "db.timed", 1, 2)
    (when,) = rows(spark, f"SELECT committed_at FROM db.timed.snapshots WHERE snapshot_id = {first}")

    assert rows(spark, f"SELECT n FROM db.timed TIMESTAMP AS OF '{when[0]}'") == [(1,)]
    assert numbers(spark, "db.timed") == [1, 2]


def test_procedures_move_a_table_through_its_history(spark: SparkSession) -> None:
    first, second = create(spark, "db.moved", 1, 2)
    call(spark, f"rollback_to_snapshot('db.moved', {first})")
    assert numbers(spark, "db.moved") == [1]
    call(spark, f"cherrypick_snapshot('db.moved', {second})")
    assert numbers(spark, "db.moved") == [1, 2]
    call(spark, f"set_current_snapshot('db.moved', {first})")
    assert numbers(spark, "db.moved") == [1]
    call(spark, f"set_current_snapshot('db.moved', {second})")
    ancestors = [row[0] for row in spark.sql("CALL lake.system.ancestors_of('db.moved')").collect()]
    assert ancestors == [second, first]
    (when,) = rows(spark, f"SELECT committed_at FROM db.moved.snapshots WHERE snapshot_id = {first}")
    call(spark, f"rollback_to_timestamp('db.moved', TIMESTAMP '{when[0]}' + INTERVAL 1 MILLISECOND)")
    assert numbers(spark, "db.moved") == [1]
    spark.sql("ALTER TABLE db.moved CREATE BRANCH audit")
    spark.sql("INSERT INTO db.moved.branch_audit VALUES (3)")
    call(spark, "fast_forward('db.moved', 'main', 'audit')")
    assert numbers(spark, "db.moved") == [1, 3]


def test_changes_are_published_from_the_audit_of_a_write(spark: SparkSession) -> None:
    create(spark, "db.staged", 1, properties="'write.wap.enabled'='true'")
    spark.conf.set("spark.wap.id", "monday")
    spark.sql("INSERT INTO db.staged VALUES (2)")
    spark.conf.unset("spark.wap.id")
    assert numbers(spark, "db.staged") == [1]

    call(spark, "publish_changes('db.staged', 'monday')")
    assert numbers(spark, "db.staged") == [1, 2]


def test_procedures_maintain_files_and_snapshots(spark: SparkSession, lake: str) -> None:
    create(spark, "db.files", *range(6), properties=MERGE_ON_READ)
    for number in (0, 1):
        spark.sql(f"INSERT INTO db.files SELECT {10 + number} + id FROM range(5)")
        spark.sql(f"DELETE FROM db.files WHERE n = {10 + number}")
    merged = call(spark, "rewrite_position_delete_files(table => 'db.files', options => map('rewrite-all', 'true'))")
    assert merged["rewritten_delete_files_count"] >= 2
    assert call(spark, "rewrite_data_files('db.files')")["rewritten_data_files_count"] >= 6
    call(spark, "rewrite_manifests('db.files')")
    call(spark, "expire_snapshots(table => 'db.files', older_than => now(), retain_last => 1)")
    with KVCatalog.open(lake) as catalog:
        folder = Path(catalog.load_table("db.files").metadata.location.removeprefix("file://"))
    orphan = folder / "data" / "lost.parquet"
    orphan.write_bytes(b"rows of a writer that died")
    old = datetime.now(UTC) - timedelta(days=9)
    os.utime(orphan, (old.timestamp(), old.timestamp()))
    older = f"older_than => TIMESTAMP '{old + timedelta(days=3):%Y-%m-%d}'"
    call(spark, f"remove_orphan_files(table => 'db.files', {older}, prefix_listing => true)")
    assert not orphan.exists()
    assert numbers(spark, "db.files") == [0, 1, 2, 3, 4, 5, 12, 12, 13, 13, 14, 14, 15]


def test_tables_and_files_of_elsewhere_are_added(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    create(spark, "db.origin", 1, 2)
    with KVCatalog.open(lake) as catalog:
        location = catalog.unregister_table("db.origin").metadata_location
    call(spark, f"register_table('db.again', '{location}')")
    assert numbers(spark, "db.again") == [1, 2]

    spark.sql("SELECT CAST(id AS INT) AS n FROM range(3)").write.parquet(str(tmp_path / "plain"))
    create(spark, "db.added")
    call(spark, f"add_files(table => 'db.added', source_table => '`parquet`.`{tmp_path / 'plain'}`')")
    assert numbers(spark, "db.added") == [0, 1, 2]


def test_changes_between_snapshots_and_statistics_are_computed(spark: SparkSession) -> None:
    first, second = create(spark, "db.changes", 1, 2)
    options = f"map('start-snapshot-id', '{first}', 'end-snapshot-id', '{second}')"
    call(spark, f"create_changelog_view(table => 'db.changes', changelog_view => 'changed', options => {options})")
    assert rows(spark, "SELECT n, _change_type FROM changed") == [(2, "INSERT")]
    assert call(spark, "compute_table_stats('db.changes')")["statistics_file"]


def test_maintenance_hands_the_compaction_of_small_files_to_spark(spark: SparkSession, lake: str) -> None:
    create(spark, "db.many", *range(6))
    create(spark, "db.few", 1, 2)

    def maintained(*options: str) -> dict[str, dict[str, Any]]:
        result = CliRunner().invoke(app, ["catalog", "maintain", lake, "db.many", "db.few", "--json", *options])
        assert result.exit_code == 0, result.output
        return {one["table"]: one for one in json.loads(result.stdout)["tables"]}

    foreseen = maintained("--compact-files", "--dry-run")
    assert [foreseen[name]["data_files_before"] for name in ("db.many", "db.few")] == [6, 0]
    done = maintained("--compact-files", "--compact-delete-files")
    assert [done["db.many"][f"data_files_{when}"] for when in ("before", "after")] == [6, 1]
    assert done["db.few"]["data_files_before"] == 0
    assert maintained("--compact-files")["db.many"]["data_files_before"] == 0
    with KVCatalog.open(lake) as catalog:
        assert len(catalog.plan_files("db.many")) == 1
        assert catalog.check() == []
    assert numbers(spark, "db.many") == list(range(6))


def test_the_command_runs_statements_in_a_session_that_exists(spark: SparkSession, lake: str) -> None:
    text = "CREATE TABLE db.command AS SELECT id FROM range(3); SELECT sum(id) AS total FROM db.command"
    result = CliRunner().invoke(app, ["spark-sql", lake, "-e", text])

    assert result.exit_code == 0, result.output
    assert result.stdout.split() == ["total", "3"]


def test_the_command_runs_statements_from_a_pipe_and_ends_at_the_first_error(spark: SparkSession, lake: str) -> None:
    text = "SELECT 40 + 2 AS answer;\nSELECT * FROM db.missing;\nSELECT 'never' AS reached;\n"
    command = [sys.executable, "-m", "endive", "spark-sql", lake, "--master", "local[1]"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    assert result.returncode == 1, result.stderr
    assert result.stdout.split() == ["answer", "42"]
    assert "error: " in result.stderr
    assert "db`.`missing" in result.stderr
