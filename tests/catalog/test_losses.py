"""Nothing that a record names is deleted, whatever happens around a commit, an expiry or a drop."""

import gc
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetPropertiesUpdate

from endive.catalog import KVCatalog, TableChange
from endive.catalog.commit import chains, manifests, rebase
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.published import NotePublished
from endive.catalog.maintenance import expiry
from endive.catalog.model.catalog_records import TABLES_BYTES_CACHED, TableRecord
from endive.catalog.operations import refs
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError, NotInCatalogError, OutcomeUnknownError
from tests.catalog.commits.interrupted import read_result_too_early
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

MODES = ["before-acknowledgement", "background"]


def rows(catalog: EndiveCatalog, name: tuple[str, ...] = NAME) -> list[int]:
    found: list[int] = catalog.load_table(name).scan().to_arrow()["n"].to_pylist()
    return sorted(found)


def raises(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def staged(table: Table, *values: int) -> TableChange:
    """An append that has written its files and is not committed."""
    transaction = table.transaction()
    transaction.append(numbers(*values))
    return TableChange(table.name(), transaction._requirements, transaction._updates)


# Commits.


def test_an_interrupt_while_a_commit_is_under_way_deletes_nothing(
    catalog: EndiveCatalog, table: Table, store: DictStore
) -> None:
    """Who waits for a commit is interrupted; the thread that commits is not."""
    table.append(numbers(1))
    stale = catalog.load_table(NAME)
    table.append(numbers(2))
    store.after = raises(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        stale.append(numbers(3))

    assert rows(catalog) == [1, 2, 3]
    assert catalog.kv.check() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["append", "overwrite"])
def test_a_retry_that_meets_its_first_try_returns_the_stored_result(
    catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch, mode: str, kind: str
) -> None:
    """The first try arrives after the repeat has looked for it, and before it looks at the table."""
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    table.append(numbers(0))
    transaction = table.transaction()
    getattr(transaction, kind)(numbers(1))
    change = TableChange(NAME, transaction._requirements, transaction._updates)
    first = catalog.kv.commit_many([change], "monday")
    read_result_too_early(monkeypatch)

    assert catalog.kv.commit_many([change], "monday") == first

    assert rows(catalog) == ([0, 1] if kind == "append" else [1])
    assert catalog.kv.check() == []


@pytest.mark.parametrize("rename", [True, False])
def test_a_commit_whose_table_cannot_be_loaded_afterwards_does_not_look_as_if_it_had_failed(
    catalog: EndiveCatalog, store: DictStore, warehouse: str, rename: bool
) -> None:
    """Renamed or dropped right after. PyIceberg deletes the files of a commit that it believes to have failed."""
    catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": "background"})
    other = EndiveCatalog.on(KVCatalog(store, warehouse))  # so that this one does not know the table's past
    other.load_table(NAME).append(numbers(0))
    table = catalog.load_table(NAME)

    def leave() -> None:
        if rename:
            catalog.rename_table(NAME, "db.moved")
        else:
            catalog.drop_table(NAME)

    store.after = leave
    with pytest.raises(CommitStateUnknownException, match="committed but not to be loaded"):
        table.append(numbers(1))

    assert len(list(Path(table.location().removeprefix("file://")).rglob("*.parquet"))) == 2
    if rename:
        assert rows(catalog, ("db", "moved")) == [0, 1]


def test_a_roll_back_with_an_append_is_not_taken_for_an_append(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    good = table.metadata.current_snapshot_id
    assert good is not None
    table.append(numbers(2))
    transaction = table.transaction()
    _, back = refs.set_ref(table.metadata, "main", good, SnapshotRefType.BRANCH)
    transaction._stage(back)
    transaction.append(numbers(3))
    requirements = staged(catalog.load_table(NAME), 9).requirements
    change = TableChange(NAME, requirements, transaction._updates)
    catalog.load_table(NAME).append(numbers(4))

    with pytest.raises(CommitConflictError):
        catalog.kv.commit_many([change])

    assert rows(catalog) == [1, 2, 4]


def test_an_append_to_a_branch_that_was_dropped_does_not_bring_it_back(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    catalog.kv.create_branch(NAME, "side")
    transaction = catalog.load_table(NAME).transaction()
    transaction.append(numbers(2), branch="side")
    catalog.kv.remove_ref(NAME, "side")

    with pytest.raises(CommitConflictError, match="side"):
        catalog.kv.commit(NAME, transaction._requirements, transaction._updates)

    assert set(catalog.kv.load_table(NAME).metadata.refs) == {"main"}


def test_a_record_names_no_older_metadata_file_and_none_of_another_table(
    catalog: EndiveCatalog, table: Table, store: DictStore
) -> None:
    loaded = catalog.kv.load_table(NAME)
    file = ("file", loaded.metadata.metadata_log, loaded.metadata.last_updated_ms)

    assert not store.transact(NotePublished(NAME, loaded.uuid, loaded.version, *file))
    assert not store.transact(NotePublished(NAME, UUID(int=7), 9, *file))
    assert not store.transact(NotePublished(NAME, loaded.uuid, 9, *file))  # before it was dropped
    assert catalog.kv.load_table(NAME).metadata_location == loaded.metadata_location


def test_a_sequence_number_taken_on_another_branch_is_a_conflict(catalog: EndiveCatalog, table: Table) -> None:
    """PyIceberg tries again after a conflict, and not after any other error."""
    table.append(numbers(1, 2))
    catalog.kv.create_branch(NAME, "side")
    stale = catalog.load_table(NAME)
    catalog.load_table(NAME).append(numbers(3), branch="side")

    stale.delete("n = 1")

    assert rows(catalog) == [2]


BEFORE, BACKGROUND = MODES


@pytest.mark.parametrize(
    ("mode", "step"),
    [
        *((BEFORE, "compute_rows"), (BEFORE, "write"), (BEFORE, "write_body")),
        *((BACKGROUND, "_on_top"), (BACKGROUND, "write_body")),
    ],
)
@pytest.mark.parametrize("appends", [1, 2])
def test_an_append_that_cannot_be_prepared_leaves_no_file(
    catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch, mode: str, appends: int, step: str
) -> None:
    """It lost its race, and the files that put it on top are written when something goes wrong."""
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    transaction = table.transaction()
    for n in range(appends):
        transaction.append(numbers(n))
    change = TableChange(NAME, transaction._requirements, transaction._updates)
    catalog.load_table(NAME).append(numbers(9))
    suffixes = {".avro", ".json"} if mode == BEFORE else {".avro"}  # in the background a thread writes the others

    def written() -> set[Path]:
        found = Path(table.location().removeprefix("file://")).rglob("*")
        return {path for path in found if path.suffix in suffixes}

    before = written()
    write_body = manifests.write_body

    def fail(*_: object, **__: object) -> None:
        raise ValueError("what nobody thought of")

    def write_and_fail(*arguments: object) -> None:
        write_body(*arguments)  # type: ignore[arg-type]
        fail()

    with monkeypatch.context() as patch:
        if step == "write_body":
            patch.setattr(rebase, "write_body", write_and_fail)
        else:
            place = {"write": MetadataFiles, "_on_top": rebase, "compute_rows": chains}[step]
            patch.setattr(place, step, fail)
        with pytest.raises(ValueError, match="nobody thought of"):
            catalog.kv.commit_many([change])

    assert written() == before
    catalog.kv.commit_many([change])
    assert rows(catalog) == [*range(appends), 9]


# Upkeep.


def test_expiry_of_a_table_that_lost_its_name_deletes_nothing_of_it(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        table.append(numbers(n))
    commit_many = KVCatalog.commit_many

    def commit_and_lose_the_name(self: KVCatalog, *arguments: object) -> object:
        answers = commit_many(self, *arguments)  # type: ignore[arg-type]
        catalog.rename_table(NAME, "db.moved")
        catalog.create_table(NAME, NUMBERS)
        return answers

    monkeypatch.setattr(KVCatalog, "commit_many", commit_and_lose_the_name)
    with pytest.raises(NotInCatalogError, match="another table"):
        catalog.kv.expire_snapshots(NAME, older_than_unix_ms=2**60)

    assert rows(catalog, ("db", "moved")) == [0, 1, 2]


def test_orphans_of_a_table_that_lost_its_name_are_left_alone(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(numbers(1))
    require_settled = expiry._require_settled

    def lose_the_name(*arguments: object) -> None:
        require_settled(*arguments)  # type: ignore[arg-type]
        catalog.rename_table(NAME, "db.moved")
        catalog.create_table(NAME, NUMBERS)

    monkeypatch.setattr(expiry, "_require_settled", lose_the_name)  # between the listing and the table
    with pytest.raises(NotInCatalogError, match="another table"):
        catalog.kv.remove_orphan_files(NAME, older_than_unix_ms=2**60)

    assert rows(catalog, ("db", "moved")) == [1]


@pytest.mark.parametrize("odd", ["/", "//", "/./"])
def test_an_odd_location_makes_no_orphans(catalog: EndiveCatalog, tmp_path: Path, odd: str) -> None:
    """A table of another catalog may have been given a location that ends in a slash, or has one too many."""
    table = catalog.create_table(NAME, NUMBERS)
    table.append(numbers(1))
    strange = table.metadata.location.replace("/db/", f"/db{odd}", 1) + odd
    metadata = table.metadata.model_copy(update={"location": strange})
    location = f"{table.metadata.location}/metadata/00009-odd.metadata.json"
    catalog.kv.files.write(metadata, location)
    catalog.drop_table(NAME)
    catalog.register_table(NAME, location)

    catalog.kv.remove_orphan_files(NAME, older_than_unix_ms=2**60)

    assert rows(catalog) == [1]


def test_the_retry_of_a_drop_does_not_drop_a_newer_table(
    catalog: EndiveCatalog, table: Table, store: DictStore
) -> None:
    def another_comes() -> None:
        catalog.create_table(NAME, NUMBERS).append(numbers(7))
        raise OutcomeUnknownError("wal/1")

    table.append(numbers(1))
    store.after = another_comes

    catalog.kv.drop_table(NAME)

    assert rows(catalog) == [7]


def test_a_table_that_was_written_since_it_was_loaded_is_not_dropped(catalog: EndiveCatalog, table: Table) -> None:
    loaded = catalog.kv.load_table(NAME)
    table.append(numbers(1))

    with pytest.raises(CommitConflictError, match="version 0 was to be dropped, and it is at 1 now"):
        catalog.kv.drop_table(NAME, purge=True, expected=loaded)

    assert rows(catalog) == [1]
    catalog.kv.drop_table(NAME, expected=catalog.kv.load_table(NAME))
    assert not catalog.table_exists(NAME)


def test_a_table_that_exists_leaves_no_file_of_a_second(catalog: EndiveCatalog, table: Table, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*.json"))

    catalog.create_table_if_not_exists(NAME, NUMBERS)

    assert set(tmp_path.rglob("*.json")) == before


# Memory.


def test_versions_that_were_passed_are_let_go(catalog: EndiveCatalog, table: Table) -> None:
    size_bytes = TABLES_BYTES_CACHED // 100
    catalog.kv.update_properties(NAME, {"endive.metadata-json": "background", "wide": "x" * size_bytes})
    for n in range(200):
        catalog.kv.commit(NAME, (), (SetPropertiesUpdate(updates={"n": str(n)}),))

    assert sum(_is_wide(one, size_bytes) for one in gc.get_objects()) < 120


def _is_wide(one: object, size_bytes: int) -> bool:
    return type(one) is TableRecord and len(one.metadata.properties.get("wide", "")) == size_bytes


def test_a_table_that_is_changed_in_place_by_its_holder_changes_nothing_else(catalog: EndiveCatalog) -> None:
    """Records are shared in the process; what is handed out is the caller's to spoil."""
    table = catalog.create_table(NAME, NUMBERS)
    table.properties["spoilt"] = "by create"
    table.append(numbers(1))
    table.properties["spoilt"] = "by commit"
    loaded = catalog.load_table(NAME)
    loaded.properties["spoilt"] = "by load"

    catalog.load_table(NAME).append(numbers(2))

    assert "spoilt" not in catalog.load_table(NAME).properties


def test_a_metadata_file_that_cannot_be_written_does_not_keep_others_from_it(
    catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = {"endive.metadata-json": "background"}
    for name in ("a", "b"):
        catalog.create_table(("db", name), NUMBERS, properties=background)
    write = MetadataFiles.write

    def fail_for_a(self: MetadataFiles, metadata: TableMetadata, location: str) -> None:
        if "/a-" in location:
            raise ValueError("what nobody thought of")
        write(self, metadata, location)

    monkeypatch.setattr(MetadataFiles, "write", fail_for_a)
    for name in ("a", "b"):
        catalog.load_table(("db", name)).append(numbers(1))
    catalog.close()

    shown = catalog.kv.files.read(catalog.kv.load_table(("db", "b")).metadata_location)
    assert len(shown.snapshots) == 1
