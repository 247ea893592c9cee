"""Formats that 0.1.0 refuses: stores with intentions, clones and catalogs of format 2 can be read and written to."""

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Privilege
from endive.catalog.pyiceberg import EndiveCatalog
from endive.kv import Reader, Store, procedure
from endive.kv.transaction import Transaction
from endive.objects import open_objects
from endive.protocol.requests import Steps
from tests.golden.conftest import ROOT
from tests.golden.test_golden import command, rows_of

LATER_MS = 4_000_000_000_000
"""Every file is older."""


@procedure("golden.add", 1)
def add(tx: Transaction, argument: bytes) -> Steps[bytes]:
    """Add to a total; the procedure that the golden store's intentions call."""
    total = int((yield from tx.get(b"total")) or b"0") + int(argument)
    tx.put(b"total", b"%d" % total)
    return b"%d" % total


def formats_of(name: str) -> set[int]:
    """Return the format versions of a store's manifests."""
    manifests = (ROOT / name / "manifest").glob("*.manifest")
    return {int.from_bytes(path.read_bytes()[8:10], "big") for path in manifests}


def test_the_data_is_of_the_raised_formats(raised: dict[str, Any]) -> None:
    assert raised
    assert (max(formats_of("helped")), formats_of("clone")) == (4, {3})
    for name in ("lake", "lake-clone"):
        with Reader(open_objects(f"file://{ROOT}/{name}/_endive")) as reader:
            assert b'"format_version":2' in (reader.get(b"__catalog") or b"")


# A store with intentions.


def test_a_store_with_intentions_reads_and_checks_clean(raised: dict[str, Any]) -> None:
    assert rows_of("helped") == raised["helped"]["now"]
    command("kv", "check", f"file://{ROOT}/helped")
    listed = command("kv", "intentions", f"file://{ROOT}/helped")
    assert [line.split()[1:3] for line in listed.splitlines()[1:]] == [
        [raised["helped"][name].partition("-")[2], "pending"] for name in ("newer", "pending")
    ]


@pytest.mark.parametrize("writer", ["shared", "exclusive"])
def test_pending_intentions_are_carried_out_once(writer: Any, raised: dict[str, Any]) -> None:
    with Store(open_objects(f"file://{ROOT}/helped"), writer) as store:
        left = store.settle()
        assert store.call("golden.add", 1, b"1") == b"13"
        store.compact(everything=True)

    assert left == (raised["helped"]["newer"],)  # its procedure has a version that is not known here
    assert rows_of("helped") == raised["helped"]["now"] | {"total": "13"}
    command("kv", "check", f"file://{ROOT}/helped")


# A clone.


def test_a_clone_and_its_source_read_and_check_clean(raised: dict[str, Any]) -> None:
    for name in ("source", "clone"):
        assert rows_of(name) == raised[name]
        command("kv", "check", f"file://{ROOT}/{name}")
    assert "of the source" not in rows_of("source", "before").values()


def test_a_clone_and_its_source_take_writes_and_maintenance(raised: dict[str, Any]) -> None:
    for name in ("clone", "source"):
        with Store(open_objects(f"file://{ROOT}/{name}")) as store:
            store.put(b"new", b"row")
            store.compact(everything=True)
        command("kv", "collect", f"file://{ROOT}/{name}", "--retention-s", "0")

    for name in ("clone", "source"):
        assert rows_of(name) == raised[name] | {"new": "row"}
        command("kv", "check", f"file://{ROOT}/{name}")
    assert "of the source" not in rows_of("source", "before").values()


# A catalog of format 2.


def contents(kv: KVCatalog) -> dict[str, Any]:
    tables = {".".join(identifier): kv.load_table(identifier).metadata for identifier in kv.list_tables("db")}
    return {
        name: {
            "uuid": str(metadata.table_uuid),
            "snapshots": len(metadata.snapshots),
            "columns": len(metadata.schema().fields),
        }
        for name, metadata in tables.items()
    }


def ids(kv: KVCatalog, name: str) -> list[int]:
    column: list[int] = EndiveCatalog.on(kv).load_table(name).scan().to_arrow()["id"].to_pylist()
    return sorted(column)


@pytest.mark.parametrize("name", ["lake", "lake-clone"])
def test_a_catalog_of_format_2_reads_and_checks_clean(name: str, raised: dict[str, Any]) -> None:
    with KVCatalog.open(f"file://{ROOT}/{name}") as kv:
        assert contents(kv) == raised[name]
        assert kv.load_view("db.view").metadata["current-version-id"] == 1
    command("catalog", "check", f"file://{ROOT}/{name}")


def test_grants_and_the_state_at_a_checkpoint_read(raised: dict[str, Any]) -> None:
    assert raised
    with KVCatalog.open(f"file://{ROOT}/lake") as kv:
        granted = [(one.grantee, one.privileges) for one in kv.grants.list()]
    assert granted == [(Grantee.parsed("ada"), (Privilege.READ,))]
    with KVCatalog.open(f"file://{ROOT}/lake", properties={"endive.at": "before"}) as past:
        assert [ids(past, name) for name in ("db.dropped", "db.plain", "db.wide")] == [[0, 1, 2], [0, 1], [1]]


def test_an_announced_append_is_committed_with_the_next(raised: dict[str, Any]) -> None:
    assert raised
    with closing(KVCatalog.open(f"file://{ROOT}/lake")) as kv:
        kv.remove_orphan_files("db.plain", LATER_MS)
        table = EndiveCatalog.on(kv).load_table("db.plain")
        table.append(pa.Table.from_pylist([{"id": 60}], schema=table.schema().as_arrow()))
        assert ids(kv, "db.plain") == [0, 1, 2, 3, 50, 60]
        assert kv.check() == []


@pytest.mark.parametrize("writer", ["shared", "exclusive"])
def test_a_catalog_of_format_2_takes_commits_and_a_restore(writer: str, raised: dict[str, Any]) -> None:
    with KVCatalog.open(f"file://{ROOT}/lake", properties={"endive.writer": writer}) as kv:
        kv.remove_orphan_files("db.plain", LATER_MS)  # carries out the announced append, which would follow the restore
        for name in raised["lake"]:
            table = EndiveCatalog.on(kv).load_table(name)
            with table.update_schema() as update:
                update.add_column("later", table.schema().find_type("id"))
            table.append(pa.Table.from_pylist([{"id": 999}], schema=table.schema().as_arrow()))
            assert ids(kv, name)[-1] == 999
        kv.restore("before")
        assert [ids(kv, name) for name in ("db.dropped", "db.plain", "db.wide")] == [[0, 1, 2], [0, 1], [1]]
        assert kv.check() == []
