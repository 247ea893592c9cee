"""Old metadata files: which are deleted after a commit, and which are kept."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.table import Table

from endive.catalog import KVCatalog, TableChange
from endive.catalog.model.keys import checkpoint_key
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import OutcomeUnknownError
from tests.catalog.commits.interrupted import Interrupted, files_of, setting
from tests.catalog.tables import NAME, NUMBERS, numbers

MAX = "write.metadata.previous-versions-max"
ENABLED = "write.metadata.delete-after-commit.enabled"


def metadata_files(table: Table) -> list[str]:
    return sorted(name for name in files_of(table) if name.endswith(".metadata.json"))


def commit(catalog: EndiveCatalog, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        catalog.kv.update_properties(NAME, {"number": str(number)})


def finished(catalog: EndiveCatalog) -> None:
    """Wait until files are deleted."""
    groups = catalog.kv._committer._loop
    groups.close()
    groups._chains._writers = ThreadPoolExecutor(1)


@pytest.fixture
def old(catalog: EndiveCatalog) -> Table:
    return catalog.create_table(NAME, NUMBERS, properties={MAX: "3"})


def test_files_that_left_the_log_are_deleted_by_default(catalog: EndiveCatalog, old: Table) -> None:
    commit(catalog, 10)
    finished(catalog)

    assert [name[:5] for name in metadata_files(old)] == ["00007", "00008", "00009", "00010"]
    loaded = catalog.load_table(NAME)
    named = [*(entry.metadata_file for entry in loaded.metadata.metadata_log), loaded.metadata_location]
    assert [Path(name).name for name in named] == metadata_files(old)
    assert catalog.kv.check() == []


def test_tables_in_the_background_delete_them_too(catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={MAX: "3", "endive.metadata-json": "background"})
    for number in range(8):
        commit(catalog, 1, number)
        catalog.kv.export_metadata(NAME)

    assert len(metadata_files(table)) == 4
    assert catalog.kv.check() == []


def test_iceberg_keeps_a_hundred(catalog: EndiveCatalog, table: Table) -> None:
    commit(catalog, 105)
    finished(catalog)

    assert len(metadata_files(table)) == 101


@pytest.mark.parametrize("properties", [{ENABLED: "false"}, {"gc.enabled": "false"}])
def test_a_table_may_keep_them(catalog: EndiveCatalog, old: Table, properties: dict[str, str]) -> None:
    catalog.kv.update_properties(NAME, properties)
    commit(catalog, 6)
    finished(catalog)

    assert len(metadata_files(old)) == 8


def test_a_checkpoint_keeps_them(catalog: EndiveCatalog, old: Table, store: Interrupted) -> None:
    store.rows[checkpoint_key("one")] = b"{}"
    commit(catalog, 6)
    finished(catalog)
    del store.rows[checkpoint_key("one")]
    commit(catalog, 1, 6)
    finished(catalog)

    assert len(metadata_files(old)) == 7  # those that left the log before are maintenance's


@pytest.mark.parametrize("explicit", [True, False])
def test_files_of_another_catalog_are_kept_unless_it_says_so(
    catalog: EndiveCatalog, old: Table, store: Interrupted, warehouse: str, explicit: bool
) -> None:
    commit(catalog, 3)
    location = catalog.load_table(NAME).metadata_location
    other = EndiveCatalog.on(KVCatalog(Interrupted(), warehouse, create=True))
    other.create_namespace("db")
    other.register_table(NAME, location)
    if explicit:
        other.kv.update_properties(NAME, {ENABLED: "true"})
    commit(other, 6)
    finished(other)
    finished(catalog)

    assert len(metadata_files(old)) == (4 if explicit else 10)


def test_files_in_another_directory_are_kept(catalog: EndiveCatalog, old: Table, tmp_path: Path) -> None:
    """As those that a clone shares with its source."""
    commit(catalog, 3)
    catalog.kv.update_properties(NAME, {"write.metadata.path": f"file://{tmp_path}/elsewhere"})
    commit(catalog, 6, 3)
    finished(catalog)

    assert len(metadata_files(old)) == 4
    assert len(list((tmp_path / "elsewhere").iterdir())) == 4


def test_a_commit_to_several_tables_deletes_them_too(catalog: EndiveCatalog, old: Table) -> None:
    catalog.create_table("db.other", NUMBERS)
    for number in range(6):
        changes = [TableChange(name, (), setting(number=str(number))) for name in (NAME, ("db", "other"))]
        catalog.kv.commit_many(changes)
    finished(catalog)

    assert len(metadata_files(old)) == 4


def test_an_unknown_outcome_deletes_nothing(catalog: EndiveCatalog, old: Table, store: Interrupted) -> None:
    commit(catalog, 5)
    catalog.load_table(NAME).append(numbers(1))
    finished(catalog)
    before = metadata_files(old)
    store.requests_lost = 2
    with pytest.raises(OutcomeUnknownError):
        commit(catalog, 1, 9)
    finished(catalog)

    assert set(before) <= set(metadata_files(old))
