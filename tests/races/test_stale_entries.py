"""Stale WAL objects, step by step: a writer stops where the race is, and others go on."""

from functools import partial

import pytest

from endive.drivers.blocking import BlockingDriver
from endive.errors import OutcomeUnknownError, StorageUnavailableError
from endive.kv.log.committing import commit_batch
from endive.kv.log.epochs import open_shared
from endive.kv.log.state import StoreState
from endive.kv.maintenance.compactor import compact_wal
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.kv.manifest import PUT_IDS_KEPT
from endive.kv.sst.reading import NoCache
from endive.kv.views import create_checkpoint
from endive.protocol.requests import List
from tests.races.processes import Process, driver_of
from tests.races.shared_writers import append_letter, logs_at_rest
from tests.store_protocols import claim_compactor


def commit(driver: BlockingDriver, state: StoreState, letter: str) -> StoreState:
    return driver.run(commit_batch(state, (partial(append_letter, letter),), NoCache())).state


def compacted_and_collected(driver: BlockingDriver) -> None:
    driver.run(compact_wal(driver.run(claim_compactor())))
    driver.run(collect_garbage(retention_ms=0))


def log(driver: BlockingDriver) -> str:
    objects = driver.objects
    return logs_at_rest({info.path: objects.get(info.path) or b"" for info in objects.list("")})[0]


def test_a_writer_that_creates_a_deleted_entry_commits_again() -> None:
    driver = driver_of()
    state = driver.run(open_shared())
    stalled = Process(commit_batch(state, (partial(append_letter, "a"),), NoCache()), driver).to_put("wal/")
    ahead = commit(driver, state, "b")
    commit(driver, ahead, "c")
    compacted_and_collected(driver)

    committed = stalled.finish()

    assert log(driver) == "bca"
    assert committed.losses == 1


def test_a_writer_whose_entry_is_compacted_before_it_looks_has_committed() -> None:
    driver = driver_of()
    state = driver.run(open_shared())
    quick = Process(commit_batch(state, (partial(append_letter, "a"),), NoCache()), driver).to_put("wal/")
    quick.step()
    compacted_and_collected(driver)

    committed = quick.finish()

    assert log(driver) == "a"
    assert (committed.losses, committed.entry) == (0, state.wal_end + 1)


def test_a_create_that_is_repeated_after_its_entry_was_deleted_is_recognised() -> None:
    """The reply is lost; the entry is compacted and deleted; the repeat succeeds, and makes a stale object."""
    driver = driver_of()
    state = driver.run(open_shared())
    unlucky = Process(commit_batch(state, (partial(append_letter, "a"),), NoCache()), driver).to_put("wal/")
    assert unlucky.request is not None
    driver.answer(unlucky.request)
    unlucky.fail(OutcomeUnknownError("reply lost"))
    ahead = driver.run(open_shared())
    commit(driver, ahead, "b")
    compacted_and_collected(driver)

    unlucky.finish()

    assert log(driver) == "ab"


def test_an_entry_that_the_manifest_no_longer_records_has_an_unknown_outcome() -> None:
    driver = driver_of()
    state = driver.run(open_shared())
    stalled = Process(commit_batch(state, (partial(append_letter, "a"),), NoCache()), driver).to_put("wal/")
    ahead = state
    for _ in range(PUT_IDS_KEPT + 2):
        ahead = commit(driver, ahead, "b")
    compacted_and_collected(driver)

    with pytest.raises(OutcomeUnknownError):
        stalled.finish()
    assert "a" not in log(driver)


def test_a_commit_whose_manifest_cannot_be_read_has_an_unknown_outcome() -> None:
    driver = driver_of()
    state = driver.run(open_shared())
    process = Process(commit_batch(state, (partial(append_letter, "a"),), NoCache()), driver).to_put("wal/")
    process.step()
    assert isinstance(process.request, List)

    with pytest.raises(OutcomeUnknownError):
        process.fail(StorageUnavailableError("manifest/", "gone"))
    assert log(driver) == "a"


def test_a_manifest_replaced_by_a_stale_one_has_an_unknown_outcome() -> None:
    """The reply is lost; the manifest is superseded and deleted; another late process uses its number again."""
    driver = driver_of()
    state = commit(driver, driver.run(open_shared()), "a")
    epoch = driver.run(claim_compactor())
    unlucky = Process(compact_wal(epoch), driver).to_put("manifest/")
    late = Process(create_checkpoint(lifetime_s=1), driver).to_put("manifest/")
    assert unlucky.request is not None
    driver.answer(unlucky.request)
    unlucky.fail(OutcomeUnknownError("reply lost"))
    commit(driver, state, "b")
    driver.run(claim_compactor())
    driver.run(collect_garbage(retention_ms=0))
    late.step()  # the stale manifest

    with pytest.raises(OutcomeUnknownError):
        unlucky.finish()
    assert log(driver) == "ab"
