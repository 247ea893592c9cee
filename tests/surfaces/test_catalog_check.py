"""`endive catalog check` finds every kind of damage, says where it is, and ends with 1. Without damage it is silent."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from endive.catalog.maintenance import check as checking
from endive.catalog.maintenance.findings import Finding
from endive.catalog.model import keys
from endive.catalog.model.catalog_records import SnapshotRecord, TableRecord
from endive.catalog.model.keys import table_key
from endive.catalog.model.transaction import StoreTransaction, TransactionFunction
from endive.catalog.operations.table_rows import drop_table
from endive.protocol.requests import Steps
from tests.surfaces.lake import Lake, events

EVENTS = table_key(("db", "events"))


def files_of(lake: Lake, pattern: str) -> list[Path]:
    """Files of the table by their names, oldest first."""
    (location,) = (lake.directory / "db").iterdir()
    found = sorted(location.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    assert found, pattern
    return found


def findings_of(lake: Lake, *words: str) -> list[str]:
    found = lake.json("check", *words, code=1)["findings"]
    assert found
    return [f"{one['place']}: {one['problem']}" for one in found]


def test_nothing_is_wrong_with_a_catalog_that_was_used(filled: Lake) -> None:
    filled.append("db.events", events(2, range(8, 10)))
    filled.use(lambda catalog: catalog.load_table("db.events").delete("id = 9"))
    filled("tag", "db.events", "now")
    filled("set", "db.events", "--add-column", "price long")
    filled("create", "db.empty", "--schema", "id long")
    filled("create", "db.gone", "--schema", "id long")
    filled("drop", "db.gone", "--yes")
    filled("rename", "db.empty", "db.hollow")
    filled("expire", "db.events", "--older-than", "0s", "--keep", "2")

    checked = {"tables": 2, "snapshots": 2, "manifests": 5, "files": 4}
    old_names = {"faults": [], "looked_at": checked, "leftover_rows": 0}
    assert filled.json("check", "--data-files") == {
        "findings": [],
        "checked": checked,
        "pending_deletions": 0,
        **old_names,
    }
    assert filled("check").out.endswith("; 0 findings\n")
    assert filled.json("check", "db.hollow")["checked"]["tables"] == 1


def test_rows_of_an_interrupted_drop_are_no_finding(filled: Lake) -> None:
    filled("create", "db.other", "--schema", "id long")
    filled.tamper(lambda tx: drop_table(tx, ("db", "events"), None))  # and no more than that

    assert filled.json("check")["pending_deletions"] > 4
    assert "which is harmless" in filled("check").out
    filled("orphans", "db.other", "--delete")
    assert filled.json("check")["pending_deletions"] == 0


def test_a_purge_that_was_interrupted_is_finished_by_the_same_command(filled: Lake) -> None:
    location = Path(filled.json("show", "db.events")["location"].removeprefix("file://"))
    filled.tamper(lambda tx: drop_table(tx, ("db", "events"), None, purge=True))

    assert "Table does not exist" in filled("drop", "db.events", "--yes", code=2).err
    assert "was dropped before" in filled("drop", "db.events", "--purge", "--yes").out
    assert [path for path in location.rglob("*") if path.is_file()] == []
    assert "Table does not exist" in filled("drop", "db.events", "--purge", "--yes", code=2).err


# Files.


def delete(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [delete, spoil])
@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("metadata/00002-*.metadata.json", "the metadata file cannot be read"),
        ("metadata/snap-*.avro", "the manifest list of snapshot"),
        ("metadata/*-m0.avro", "the manifest cannot be read"),
    ],
)
def test_files_that_are_missing_or_spoilt(
    filled: Lake, damage: Callable[[Path], None], pattern: str, problem: str
) -> None:
    path = files_of(filled, pattern)[0]
    damage(path)

    (fault,) = findings_of(filled)

    assert fault.startswith("db.events: ")
    assert path.name in fault
    assert problem in fault


def test_a_metadata_file_that_says_something_else(filled: Lake) -> None:
    path = files_of(filled, "metadata/00002-*.metadata.json")[0]
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"properties": {"somebody": "changed it"}}))

    (fault,) = findings_of(filled)

    assert path.name in fault
    assert "does not show what the records say" in fault


def test_data_files_are_checked_if_asked(filled: Lake) -> None:
    path = files_of(filled, "data/**/*.parquet")[0]
    path.unlink()

    assert "0 findings" in filled("check").out
    (fault,) = findings_of(filled, "--data-files")
    assert path.name in fault
    assert "the data file is missing" in fault


# Rows. Each of these works spoils one, and the check must say what is named beside it.


def putting(key: bytes, value: bytes) -> TransactionFunction[None]:
    def work(tx: StoreTransaction) -> Steps[None]:
        yield from ()
        tx.put(key, value)

    return work


def removing(prefix: str) -> TransactionFunction[None]:
    """Remove the first row of a keyspace."""

    def work(tx: StoreTransaction) -> Steps[None]:
        rows = yield from tx.scan(prefix.encode())
        tx.delete(rows[0][0])

    return work


def spoiling(prefix: str) -> TransactionFunction[None]:
    """Write half of the first row of a keyspace."""

    def work(tx: StoreTransaction) -> Steps[None]:
        rows = yield from tx.scan(prefix.encode())
        key, body = rows[0]
        tx.put(key, body[: len(body) // 2])

    return work


def moving(prefix: str, old: bytes, new: bytes) -> TransactionFunction[None]:
    """Put the first row of a keyspace under another key, in the place of its own."""

    def work(tx: StoreTransaction) -> Steps[None]:
        rows = yield from tx.scan(prefix.encode())
        key, body = rows[0]
        tx.delete(key)
        tx.put(key.replace(old, new), body)

    return work


def changing_table(change: Callable[[TableRecord], TableRecord]) -> TransactionFunction[None]:
    def work(tx: StoreTransaction) -> Steps[None]:
        body = yield from tx.get(EVENTS)
        assert body is not None
        tx.put(EVENTS, change(TableRecord.decoded(body)).encoded())

    return work


def other_figures(tx: StoreTransaction) -> Steps[None]:
    """A file's row with another number of rows than its manifest has."""
    rows = yield from tx.scan(keys.FILES.encode())
    key, body = rows[0]
    tx.put(key, json.dumps(json.loads(body) | {"record_count": 99}).encode())


def a_file_too_many(tx: StoreTransaction) -> Steps[None]:
    rows = yield from tx.scan(keys.FILES.encode())
    key, body = rows[0]
    tx.put(key.replace(b".parquet", b"-2.parquet"), body.replace(b".parquet", b"-2.parquet"))


def same_uuid_twice(tx: StoreTransaction) -> Steps[None]:
    body = yield from tx.get(EVENTS)
    assert body is not None
    record = replace(TableRecord.decoded(body), identifier=("db", "twin"))
    tx.put(table_key(record.identifier), record.encoded())


def files_of_no_snapshot(tx: StoreTransaction) -> Steps[None]:
    rows = yield from tx.scan(keys.FILES.encode())
    key, body = rows[0]
    space, uuid, _, path = key.decode().split("/", 3)
    tx.put(f"{space}/{uuid}/77/{path}".encode(), body)


def parent_without_record(tx: StoreTransaction) -> Steps[None]:
    """The younger of two snapshots says that it builds on one that is not there."""
    rows = yield from tx.scan(keys.SNAPSHOTS.encode())
    for key, body in rows:
        record = SnapshotRecord.decoded(body)
        if record.snapshot.parent_snapshot_id is not None:
            changed = record.snapshot.model_copy(update={"parent_snapshot_id": 77})
            tx.put(key, replace(record, snapshot=changed).encoded())


def no_metadata_file(record: TableRecord) -> TableRecord:
    return replace(record, metadata_location="")


def refs_to_nowhere(record: TableRecord) -> TableRecord:
    refs = {name: ref.model_copy(update={"snapshot_id": 77}) for name, ref in record.metadata.refs.items()}
    return replace(record, metadata=record.metadata.model_copy(update={"refs": refs}))


STRAY = f"{keys.SNAPSHOTS}{UUID(int=7)}/7"
ROW_DAMAGES: dict[str, tuple[TransactionFunction[None], str]] = {
    "a table cannot be read": (spoiling(keys.TABLES), "__tables/db/events: the row cannot be read"),
    "a namespace cannot be read": (spoiling(keys.NAMESPACES), "__namespaces/db: the row cannot be read"),
    "a snapshot cannot be read": (spoiling(keys.SNAPSHOTS), "db.events: its rows cannot be read"),
    "a line of history cannot be read": (spoiling(keys.HISTORY), "00000000: the row cannot be read"),
    "a file cannot be read": (spoiling(keys.FILES), ".parquet: the row cannot be read"),
    "a commit's answer cannot be read": (spoiling(keys.COMMITS), "/id/"),
    "a table is under another name": (
        moving(keys.TABLES, b"events", b"elsewhere"),
        "elsewhere: __tables/db/events",
    ),
    "a file is under another path": (moving(keys.FILES, b".parquet", b".orc"), "belongs elsewhere: to another file"),
    "the table of rows is gone": (removing(keys.TABLES), "rows of a table that is not there"),
    "a row of no table": (putting(STRAY.encode(), b"{}"), STRAY.rpartition("/")[0] + "/: 1 row of a table"),
    "an imported table is gone": (
        putting(keys.imported_key(UUID(int=7)), b"x"),
        f"{keys.IMPORTED}{UUID(int=7)}/: 1 row of a table that is not there",
    ),
    "where a table came from cannot be read": (
        putting(keys.imported_key(UUID(int=7)), b"\xff"),
        f"{keys.IMPORTED}{UUID(int=7)}: the row cannot be read",
    ),
    "the files' snapshot is gone": (files_of_no_snapshot, "/77/: 1 row of a snapshot that is not there"),
    "a branch leads nowhere": (changing_table(refs_to_nowhere), "branch main points to snapshot 77"),
    "a snapshot is gone": (removing(keys.SNAPSHOTS), "which is not there"),
    "a parent is gone": (parent_without_record, "its file rows build on snapshot 77, which is not there"),
    "a file's row is gone": (removing(keys.FILES), "which the manifests have"),
    "a file's row is too many": (a_file_too_many, "-2.parquet, which the manifests do not have"),
    "a file's figures differ": (other_figures, "__files and the manifests differ about "),
    "two tables share their rows": (same_uuid_twice, "db.events and db.twin: have the same uuid"),
    "a table has no metadata file": (changing_table(no_metadata_file), "it has no metadata file"),
    "a namespace is under another name": (moving(keys.NAMESPACES, b"db", b"bd"), "__namespaces/bd: the row belongs"),
}


@pytest.mark.parametrize("damage", ROW_DAMAGES, ids=lambda name: name.replace(" ", "_"))
def test_rows_that_are_spoilt_missing_or_too_many(filled: Lake, damage: str) -> None:
    work, expected = ROW_DAMAGES[damage]
    filled.tamper(work)

    assert expected in "\n".join(findings_of(filled))
    assert "finding: " in filled("check", code=1).out


# The store, and writers beside the check.


def test_a_damaged_store_is_checked_as_far_as_it_can_be(filled: Lake) -> None:
    path = max((filled.directory / "_endive" / "wal").iterdir())
    path.write_bytes(path.read_bytes()[:-3])

    faults = findings_of(filled)

    assert faults[0].startswith(f"_endive/wal/{path.name}: ")
    assert "its tables were not checked" in faults[-1]


def test_a_table_that_changes_during_its_check_is_checked_again(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:

    looks = []
    real = checking._look_at

    def look_and_be_disturbed(*arguments: object) -> checking.CatalogReport:
        looks.append(1)
        report = real(*arguments)  # type: ignore[arg-type]
        if len(looks) == 1:
            report.findings.append(Finding("db.events", "seen half way through a commit"))
            filled.append("db.events", events(2, range(8, 9)))
        return report

    monkeypatch.setattr(checking, "_look_at", look_and_be_disturbed)
    filled.use(lambda catalog: looks.append(len(checking.check(catalog.kv.store, catalog.kv.files).findings)))

    assert looks == [1, 1, 0]
