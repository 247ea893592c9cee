"""A session of Trino on SeaweedFS, beside PyIceberg's client: both write, and read the same rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from endive.catalog import KVCatalog
from endive.server import RunningServer, serve_in_background
from tests.server.trino import Trino, trino
from tests.servers.conftest import KNOWN_KEYS, keyed_bucket, locked_s3_endpoint

__all__ = ["keyed_bucket", "locked_s3_endpoint"]


def catalog_of(server: RunningServer, endpoint: str) -> dict[str, str]:
    """Properties of a catalog of Trino: the server, and keys of its own for the tables' files."""
    return {
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": server.url,
        "iceberg.rest-catalog.security": "OAUTH2",
        "iceberg.rest-catalog.oauth2.token": server.token,
        "fs.native-s3.enabled": "true",
        "s3.endpoint": endpoint,
        "s3.region": KNOWN_KEYS["AWS_REGION"],
        "s3.path-style-access": "true",
        "s3.aws-access-key": KNOWN_KEYS["AWS_ACCESS_KEY_ID"],
        "s3.aws-secret-key": KNOWN_KEYS["AWS_SECRET_ACCESS_KEY"],
    }


@pytest.mark.campaign
def test_a_session_of_trino(tmp_path: Path, keyed_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KNOWN_KEYS.items():
        monkeypatch.setenv(name, value)
    reach = {"s3.endpoint": keyed_bucket, "s3.region": KNOWN_KEYS["AWS_REGION"]}
    with (
        KVCatalog.create("s3://keyed/trino", properties=reach) as catalog,
        serve_in_background(catalog) as server,
        trino(tmp_path / "trino", catalog_of(server, keyed_bucket)) as engine,
    ):
        client = load_catalog("lake", type="rest", **server.client_properties)
        assert isinstance(client, RestCatalog)
        change_rows(engine, client)
        evolve_and_go_back(engine)
        use_views_and_maintenance(engine)
        assert catalog.check() == []


def read_by(client: RestCatalog, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in client.load_table(name).scan().to_arrow().to_pylist())


def change_rows(engine: Trino, client: RestCatalog) -> None:
    engine.rows("CREATE SCHEMA db WITH (location = 's3://keyed/trino/db')")
    engine.rows("CREATE TABLE t WITH (partitioning = ARRAY['bucket(id, 2)']) AS SELECT 1 AS id, VARCHAR 'a' AS name")
    engine.rows("INSERT INTO t VALUES (2, 'b'), (3, 'c')")
    engine.rows("UPDATE t SET name = 'B' WHERE id = 2")
    engine.rows("DELETE FROM t WHERE id = 3")
    client.load_table("db.t").append(
        pa.table({"id": pa.array([4], pa.int32()), "name": ["d"]}),
    )
    engine.rows(
        "MERGE INTO t USING (VALUES (4, 'D'), (5, 'e')) AS s (id, name) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name)"
    )
    expected = [(1, "a"), (2, "B"), (4, "D"), (5, "e")]
    assert sorted(engine.rows("SELECT * FROM t")) == expected
    assert read_by(client, "db.t") == expected


def evolve_and_go_back(engine: Trino) -> None:
    (first, *_) = [row[0] for row in engine.rows('SELECT snapshot_id FROM "t$snapshots" ORDER BY committed_at')]
    assert engine.rows(f"SELECT * FROM t FOR VERSION AS OF {first}") == [(1, "a")]  # noqa: S608 - a number
    engine.rows("ALTER TABLE t ADD COLUMN extra DOUBLE")
    engine.rows("ALTER TABLE t RENAME COLUMN name TO title")
    engine.rows("INSERT INTO t VALUES (6, 'f', 0.5)")
    assert engine.rows("SELECT title, extra FROM t WHERE id = 6") == [("f", 0.5)]
    assert engine.rows('SELECT count(*) FROM "t$files" WHERE content = 0') >= [(1,)]
    engine.rows("ALTER TABLE t RENAME TO moved")
    assert engine.rows("SHOW TABLES") == [("moved",)]


def use_views_and_maintenance(engine: Trino) -> None:
    engine.rows("CREATE VIEW even AS SELECT id FROM moved WHERE id % 2 = 0")
    assert sorted(engine.rows("SELECT * FROM even")) == [(2,), (4,), (6,)]
    engine.rows("DROP VIEW even")
    engine.rows("ALTER TABLE moved EXECUTE optimize")
    assert sorted(engine.rows("SELECT id FROM moved")) == [(1,), (2,), (4,), (5,), (6,)]
    engine.rows("DROP TABLE moved")
    engine.rows("DROP SCHEMA db")
