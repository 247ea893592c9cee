"""Metadata files that are written at the same time as the records that name them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType

from endive.catalog import KVCatalog, TableChange
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.table_rows import find_table, load_table
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError, OutcomeUnknownError
from endive.protocol.requests import Steps
from tests.catalog.commits.interrupted import Interrupted, rows_of, setting
from tests.catalog.commits.test_groups import adds_column
from tests.catalog.tables import NAME, NUMBERS, numbers

ROOT = Path(__file__).resolve().parents[3]
BESIDE = {"py-io-impl": "tests.catalog.whole_files.WholeFileIO"}
WRITE = MetadataFiles.write


class Killed(BaseException):
    """The process ends."""


@pytest.fixture(params=[False, True], ids=["the file is first", "the record is first"])
def store(request: pytest.FixtureRequest) -> Interrupted:
    opened = Interrupted()
    opened.submits_at_once = request.param
    return opened


@pytest.fixture
def kv(store: Interrupted, warehouse: str) -> Iterator[KVCatalog]:
    with another(store, warehouse, create=True) as opened:
        opened.create_namespace("db")
        opened.create_table(NAME, NUMBERS)
        yield opened


def another(store: Interrupted, warehouse: str, create: bool = False) -> KVCatalog:
    return KVCatalog(store, warehouse, BESIDE, create=create)


def record_of(kv: KVCatalog) -> TableRecord:
    def look(tx: StoreTransaction) -> Steps[TableRecord | None]:
        found = yield from find_table(tx, NAME)
        return found

    record = kv.store.read(look)
    assert record is not None
    return record


def is_there(location: str) -> bool:
    return Path(urlsplit(location).path).exists()


def files_in(warehouse: str) -> set[Path]:
    return set(Path(urlsplit(warehouse).path).rglob("*.metadata.json"))


def expect_whole(kv: KVCatalog) -> None:
    """Every file that the table names exists, and the newest shows what the records say."""
    loaded = kv.load_table(NAME)
    assert kv.files.read(loaded.metadata_location) == loaded.metadata
    assert all(is_there(entry.metadata_file) for entry in loaded.metadata.metadata_log)
    assert kv.check() == []


def failing(times: int) -> Callable[..., None]:
    left = iter(range(times))

    def write(self: MetadataFiles, metadata: TableMetadata, location: str) -> None:
        if next(left, None) is not None:
            raise OSError("the bucket is away")
        WRITE(self, metadata, location)

    return write


def test_a_record_says_that_its_file_was_written_beside_it(kv: KVCatalog, store: Interrupted, warehouse: str) -> None:
    assert not record_of(kv).is_written_beside  # a table's first file is written before
    for number in range(3):
        kv.commit(NAME, (), setting(a=str(number)))
        assert record_of(kv).is_written_beside
        expect_whole(kv)
        expect_whole(another(store, warehouse))
    assert len(kv.load_table(NAME).metadata.metadata_log) == 3


def test_files_of_a_directory_are_written_before(store: Interrupted, warehouse: str) -> None:
    with KVCatalog(store, warehouse, create=True) as kv:
        kv.create_namespace("db")
        kv.create_table(NAME, NUMBERS)
        kv.commit(NAME, (), setting(a="1"))
        assert not record_of(kv).is_written_beside


def test_an_older_record_is_read(kv: KVCatalog) -> None:
    record = record_of(kv)
    assert b"written_beside" not in record.encoded()
    assert TableRecord.decoded(record.encoded()) == record


@pytest.mark.parametrize("last", ["load", "commit", "several tables", "export", "unregister"])
def test_a_file_that_a_killed_process_has_not_written_is_written_by_another(
    kv: KVCatalog, store: Interrupted, warehouse: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    store.submits_at_once = True
    with monkeypatch.context() as patch:
        patch.setattr(MetadataFiles, "write", die)
        with pytest.raises(Killed):
            kv.commit(NAME, (), setting(a="1"))
    named = record_of(kv).metadata_location
    assert not is_there(named)
    assert kv.check() == []  # it is no damage

    rival = another(store, warehouse)
    if last == "commit":
        rival.commit(NAME, (), setting(b="2"))
    elif last == "several tables":
        rival.create_table("db.u", NUMBERS)
        rival.commit_many([TableChange(name, (), setting(b="2")) for name in (NAME, ("db", "u"))])
    elif last == "export":
        assert rival.export_metadata(NAME) == named
    elif last == "unregister":
        assert rival.unregister_table(NAME).metadata_location == named
        rival.register_table(NAME, named)
    expect_whole(rival)
    assert is_there(named)
    assert rival.load_table(NAME).metadata.properties["a"] == "1"


def test_a_background_commit_on_a_record_without_a_file_goes_on_from_the_file_before(
    kv: KVCatalog, store: Interrupted, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    before = kv.load_table(NAME).metadata_location
    store.submits_at_once = True
    with monkeypatch.context() as patch:
        patch.setattr(MetadataFiles, "write", die)
        with pytest.raises(Killed):
            kv.commit(NAME, (), setting(a="1"))
    background = {**BESIDE, "endive.metadata-json": "background"}
    with KVCatalog(store, warehouse, background) as rival:
        rival.commit(NAME, (), setting(b="2"))
    with another(store, warehouse) as again:
        expect_whole(again)
        assert [entry.metadata_file for entry in again.load_table(NAME).metadata.metadata_log] == [before]


def test_a_reader_that_may_not_write_gets_the_file_before(
    kv: KVCatalog, store: Interrupted, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kv.load_table(NAME).metadata_location
    store.submits_at_once = True
    with monkeypatch.context() as patch:
        patch.setattr(MetadataFiles, "write", failing(9))
        with pytest.raises(OutcomeUnknownError):
            kv.commit(NAME, (), setting(a="1"))
        loaded = another(store, warehouse).load_table(NAME)
    assert loaded.metadata_location == before
    assert loaded.metadata.properties == {"a": "1"}


@pytest.mark.parametrize("times", [1, 2])
def test_a_file_that_cannot_be_written_is_no_failed_commit(
    kv: KVCatalog, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried twice; then the caller learns that the commit has happened, and a retry has the file written."""
    monkeypatch.setattr(MetadataFiles, "write", failing(times))
    if times == 1:
        kv.commit(NAME, (), setting(a="1"), "id")
    else:
        with pytest.raises(OutcomeUnknownError, match=r"committed, but its metadata file .* the bucket is away"):
            kv.commit(NAME, (), setting(a="1"), "id")
    result = kv.commit(NAME, (), setting(a="1"), "id")
    assert is_there(result.metadata_location)
    assert kv.load_table(NAME).version == 1
    expect_whole(kv)


def test_a_retry_fails_until_the_file_can_be_written(kv: KVCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(MetadataFiles, "write", failing(9))
        for _ in range(2):
            with pytest.raises(OutcomeUnknownError, match="committed"):
                kv.commit(NAME, (), setting(a="1"), "id")
    assert is_there(kv.commit(NAME, (), setting(a="1"), "id").metadata_location)


def test_pyiceberg_is_told_that_the_state_is_unknown(kv: KVCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = EndiveCatalog.on(kv).load_table(NAME)
    monkeypatch.setattr(MetadataFiles, "write", failing(2))
    with pytest.raises(CommitStateUnknownException, match="committed, but its metadata file"):
        table.append(numbers(1))
    assert rows_of(table) == [1]
    expect_whole(kv)


def test_a_refused_commit_leaves_no_file(kv: KVCatalog, store: Interrupted, warehouse: str) -> None:
    rival = another(store, warehouse)
    change = adds_column(EndiveCatalog.on(kv), "a")
    store.before = lambda: EndiveCatalog.on(rival).load_table(NAME).update_schema().add_column("b", LongType()).commit()
    before = files_in(warehouse)
    with pytest.raises(CommitConflictError):
        kv.commit(NAME, change.requirements, change.updates)
    assert len(files_in(warehouse) - before) == 1  # the rival's


def test_a_lost_race_leaves_no_file(kv: KVCatalog, store: Interrupted, warehouse: str) -> None:
    rival = another(store, warehouse)
    store.before = lambda: rival.commit(NAME, (), setting(b="2"))
    before = files_in(warehouse)
    kv.commit(NAME, (), setting(a="1"))
    assert len(files_in(warehouse) - before) == 2
    assert kv.load_table(NAME).metadata.properties == {"a": "1", "b": "2"}
    expect_whole(kv)


@pytest.mark.parametrize("lost", ["answers_lost", "requests_lost"])
def test_an_unknown_outcome_is_resolved(kv: KVCatalog, store: Interrupted, lost: str) -> None:
    setattr(store, lost, 1)
    result = kv.commit(NAME, (), setting(a="1"))
    assert is_there(result.metadata_location)  # also if the error came when the transaction was submitted
    expect_whole(kv)


def test_a_process_that_loads_between_record_and_file_gets_a_file(
    kv: KVCatalog, store: Interrupted, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = another(store, warehouse)
    seen: list[str] = []
    store.submits_at_once = True

    def write(self: MetadataFiles, metadata: TableMetadata, location: str) -> None:
        if self is kv.files:
            loaded = rival.load_table(NAME)
            assert rival.files.read(loaded.metadata_location) == loaded.metadata
            seen.append(loaded.metadata_location)
        WRITE(self, metadata, location)

    monkeypatch.setattr(MetadataFiles, "write", write)
    result = kv.commit(NAME, (), setting(a="1"))
    assert seen == [result.metadata_location]
    expect_whole(kv)


def test_restored_and_cloned_tables_have_files(
    kv: KVCatalog, store: Interrupted, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    store.submits_at_once = True
    with monkeypatch.context() as patch:
        patch.setattr(MetadataFiles, "write", die)
        with pytest.raises(Killed):
            kv.commit(NAME, (), setting(a="1"))
    kv.create_checkpoint("then")
    rival = another(store, warehouse)
    rival.commit(NAME, (), setting(a="2"))
    rival.restore("then")
    assert rival.load_table(NAME).metadata.properties == {"a": "1"}
    rival.export_metadata(NAME)
    expect_whole(rival)


DIES_BETWEEN = """
import os, sys
from endive.catalog.commit import commit_loop
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.commits.test_files_beside import BESIDE, NAME, record_of, setting

catalog = EndiveCatalog("dies", uri=sys.argv[1], **BESIDE)
before = record_of(catalog.kv).version

def die(chain):
    while record_of(catalog.kv).version == before:
        pass  # until the record is durable
    os._exit(9)

commit_loop._written_beside = die
catalog.kv.commit(NAME, (), setting(a="1"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["shared", "exclusive"])
def test_a_process_that_is_killed_between_record_and_file_loses_neither(writer: str, tmp_path: Path) -> None:
    properties = {**BESIDE, "endive.writer": writer}
    with closing(EndiveCatalog("one", uri=str(tmp_path), **properties)) as catalog:
        catalog.create_namespace("db")
        catalog.create_table(NAME, NUMBERS)
    command = [sys.executable, "-c", DIES_BETWEEN, str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 9
    with closing(EndiveCatalog("two", uri=str(tmp_path), **properties)) as catalog:
        assert not is_there(record_of(catalog.kv).metadata_location)
        expect_whole(catalog.kv)
        assert catalog.load_table(NAME).properties == {"a": "1"}


def test_threads_with_failing_files_lose_nothing(
    kv: KVCatalog, store: Interrupted, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes, a file in three fails, and each is asked for its table all the time."""
    numbered = iter(range(10_000))

    def write(self: MetadataFiles, metadata: TableMetadata, location: str) -> None:
        if next(numbered) % 3 == 0:
            raise OSError("the bucket is away")
        WRITE(self, metadata, location)

    monkeypatch.setattr(MetadataFiles, "write", write)
    problems: list[BaseException] = []

    def work(one: KVCatalog, letter: str) -> None:
        try:
            for number in range(20):
                commit_id = f"{letter}-{number}"
                try:
                    result = one.commit(NAME, (), setting(**{commit_id: "1"}), commit_id)
                    assert is_there(result.metadata_location) or one.load_table(NAME).version > result.version
                except OutcomeUnknownError:
                    pass
                loaded = one.load_table(NAME)
                assert commit_id in loaded.metadata.properties
                assert is_there(loaded.metadata_location)
        except BaseException as error:  # noqa: BLE001 - of another thread
            problems.append(error)

    threads = [Thread(target=work, args=(another(store, warehouse), letter)) for letter in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    monkeypatch.setattr(MetadataFiles, "write", WRITE)
    expect_whole(another(store, warehouse))
    assert len(kv.load_table(NAME).metadata.properties) == 60


def test_a_file_is_not_written_from_a_later_state(
    kv: KVCatalog, store: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(MetadataFiles, "write", failing(2))
        with pytest.raises(OutcomeUnknownError):
            kv.commit(NAME, (), setting(a="1"))
    old = record_of(kv)
    kv.commit(NAME, (), setting(a="2"))
    Path(urlsplit(old.metadata_location).path).unlink()
    with another(store, kv.warehouse) as rival:
        loaded = rival.store.read(lambda tx: load_table(tx, NAME))
        assert rival.files.existing(old, lambda: loaded) == ""
    assert not is_there(old.metadata_location)
