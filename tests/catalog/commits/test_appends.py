"""Appends that race: each is rebased."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from endive.catalog import TableChange
from endive.catalog.commit.decision import must_rebase
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError
from tests.catalog.commits.interrupted import Interrupted, files_of, rows_of
from tests.catalog.tables import NAME, NUMBERS, numbers


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_append_to_an_old_state_is_rebased(catalog: EndiveCatalog, version: str) -> None:
    catalog.create_table(NAME, NUMBERS, properties={"format-version": version})
    first, second = catalog.load_table(NAME), catalog.load_table(NAME)
    first.append(numbers(1))
    second.append(numbers(2))

    table = catalog.load_table(NAME)
    assert rows_of(table) == [1, 2]
    older, newer = table.metadata.snapshots
    assert newer.parent_snapshot_id == older.snapshot_id
    assert newer.timestamp_ms >= older.timestamp_ms
    assert newer.summary is not None
    assert (newer.summary["added-records"], newer.summary["total-records"]) == ("1", "2")
    assert newer.summary["total-data-files"] == "2"
    assert catalog.kv.check() == []
    assert second.metadata == table.metadata


def test_sequence_numbers_are_those_of_the_snapshots(catalog: EndiveCatalog, table: Table) -> None:
    handles = [catalog.load_table(NAME) for _ in range(3)]
    for number, handle in enumerate(handles):
        handle.append(numbers(number))

    table.refresh()
    by_snapshot = {one.snapshot_id: one.sequence_number for one in table.metadata.snapshots}
    assert sorted(filter(None, by_snapshot.values())) == [1, 2, 3]
    entries = table.inspect.entries().to_pylist()
    assert len(entries) == 3
    assert all(one["sequence_number"] == by_snapshot[one["snapshot_id"]] for one in entries)
    current = table.current_snapshot()
    assert current is not None
    assert {one.added_snapshot_id: one.sequence_number for one in current.manifests(table.io)} == by_snapshot
    assert {one.added_snapshot_id: one.min_sequence_number for one in current.manifests(table.io)} == by_snapshot


def test_sequence_numbers_are_right_after_the_manifests_were_read_before_a_rebase(
    catalog: EndiveCatalog, table: Table
) -> None:
    """PyIceberg remembers manifests by their path alone, and an append that is put on top keeps its own."""
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    staged = late.table_metadata.current_snapshot()
    assert staged is not None
    assert [one.sequence_number for one in staged.manifests(table.io)] == [1]
    table.append(numbers(1))

    catalog.kv.commit(NAME, late._requirements, late._updates)

    current = table.refresh().current_snapshot()
    assert current is not None
    assert sorted(one.sequence_number for one in current.manifests(table.io)) == [1, 2]
    assert sorted(one["sequence_number"] for one in table.inspect.entries().to_pylist()) == [1, 2]


def test_manifests_of_deleted_files_are_not_taken_along(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(3))
    table.delete("n = 1")

    catalog.kv.commit(NAME, late._requirements, late._updates)

    current = table.refresh().current_snapshot()
    assert current is not None
    assert [one.deleted_files_count for one in current.manifests(table.io)] == [0]
    assert rows_of(table) == [3]


def test_a_requirement_about_another_branch_is_checked(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    catalog.kv.create_branch(NAME, "side")
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    unmoved = AssertRefSnapshotId(ref="side", snapshot_id=table.metadata.current_snapshot_id)
    for branch in ("main", "side"):
        catalog.load_table(NAME).append(numbers(3), branch=branch)

    with pytest.raises(CommitConflictError, match="branch side has changed"):
        catalog.kv.commit(NAME, (*late._requirements, unmoved), late._updates)

    assert rows_of(table) == [1, 3]


def test_two_appends_of_one_transaction_are_both_rebased(catalog: EndiveCatalog, table: Table) -> None:
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    late.append(numbers(3))
    table.append(numbers(1))

    late.commit_transaction()

    assert rows_of(table) == [1, 2, 3]
    lineage = [one.sequence_number for one in ancestors_of(table.current_snapshot(), table.metadata)]
    assert lineage == [3, 2, 1]
    entries = table.inspect.entries().to_pylist()
    assert sorted(one["sequence_number"] for one in entries) == [1, 2, 3]
    assert catalog.kv.check() == []


def test_an_append_with_merged_manifests_brings_only_its_own_files(catalog: EndiveCatalog) -> None:
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = catalog.create_table(NAME, NUMBERS, properties=merging)
    table.append(numbers(1))
    late = catalog.load_table(NAME)
    table.overwrite(numbers(2))  # the files that `late` merges into its manifest are gone by now

    late.append(numbers(3))

    assert rows_of(table) == [2, 3]
    assert catalog.kv.check() == []


def test_appends_to_two_branches_do_not_share_a_sequence_number(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    catalog.kv.create_branch(NAME, "dev")
    main, dev = catalog.load_table(NAME), catalog.load_table(NAME)
    main.append(numbers(2))
    dev.append(numbers(3), branch="dev")

    table.refresh()
    assert sorted(one.sequence_number or 0 for one in table.metadata.snapshots) == [1, 2, 3]
    assert sorted(table.scan().use_ref("dev").to_arrow()["n"].to_pylist()) == [1, 3]
    assert rows_of(table) == [1, 2]


def test_an_append_whose_sequence_number_is_used_on_another_branch_is_rebased(
    catalog: EndiveCatalog, table: Table
) -> None:
    """By the catalog: its own branch has not moved, and PyIceberg need not try again."""
    table.append(numbers(1))
    catalog.kv.create_branch(NAME, "dev")
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    catalog.load_table(NAME).append(numbers(3), branch="dev")

    catalog.kv.commit(NAME, late._requirements, late._updates)

    assert rows_of(table) == [1, 2]
    assert sorted(one.sequence_number or 0 for one in table.metadata.snapshots) == [1, 2, 3]


def test_the_list_that_an_append_no_longer_needs_is_deleted(catalog: EndiveCatalog, table: Table) -> None:
    late = catalog.load_table(NAME)
    table.append(numbers(1))
    late.append(numbers(2))

    table.refresh()
    named = {one.manifest_list.rpartition("/")[2] for one in table.metadata.snapshots}
    assert {name for name in files_of(table) if name.startswith("snap-")} == named
    assert catalog.kv.remove_orphan_files(NAME, 2**62, dry_run=True) == []


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_many_threads_append_to_one_table(catalog: EndiveCatalog, mode: str) -> None:
    catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})

    def append(writer: int) -> None:
        handle = catalog.load_table(NAME)
        for number in range(3):
            handle.append(numbers(writer * 10 + number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(8)))

    table = catalog.load_table(NAME)
    assert rows_of(table) == sorted(writer * 10 + number for writer in range(8) for number in range(3))
    catalog.kv.export_metadata(NAME)
    assert catalog.kv.check() == []


def test_a_table_without_retries_is_not_rebased(catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"commit.retry.num-retries": "0"})
    late = catalog.load_table(NAME)
    table.append(numbers(1))

    with pytest.raises(CommitFailedException, match="main was created concurrently"):
        late.append(numbers(2))


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
@pytest.mark.parametrize("is_lost_inside", [False, True])
def test_an_append_that_must_not_follow_another_fails_and_leaves_nothing(
    catalog: EndiveCatalog, rival: EndiveCatalog, store: Interrupted, mode: str, is_lost_inside: bool
) -> None:
    """It may lose before its transaction begins, or inside it."""
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    late, before = catalog.load_table(NAME).transaction(), files_of(table)
    late.append(numbers(2), snapshot_properties={"endive.rebase": "false"})
    of_the_client = files_of(table) - before

    def win() -> None:
        rival.load_table(NAME).append(numbers(1))

    if is_lost_inside:
        store.before = win
    else:
        win()
    with pytest.raises(CommitConflictError, match="main was created concurrently"):
        catalog.kv.commit(NAME, late._requirements, late._updates)

    assert rows_of(table) == [1]
    for one in (rival, catalog):
        one.close()  # all metadata files are written
    orphans = catalog.kv.remove_orphan_files(NAME, 2**62, dry_run=True)
    assert {path.rpartition("/")[2] for path in orphans} == of_the_client
    assert catalog.kv.check() == []


@pytest.mark.parametrize("branches", [(), ("main", "side")])
def test_only_an_append_to_one_branch_is_rebased(
    catalog: EndiveCatalog, table: Table, branches: tuple[str, ...]
) -> None:
    """One to none has nothing to follow, and of several only one could be followed."""
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    (move,) = (one for one in late._updates if isinstance(one, SetSnapshotRefUpdate))
    updates = [one for one in late._updates if one is not move]
    updates += [move.model_copy(update={"ref_name": branch}) for branch in branches]
    table.append(numbers(1))

    with pytest.raises(CommitConflictError, match="main was created concurrently"):
        catalog.kv.commit(NAME, late._requirements, updates)

    assert rows_of(table) == [1]
    assert set(table.metadata.refs) == {"main"}


def test_an_append_to_a_table_of_format_3_is_not_rebased(catalog: EndiveCatalog, table: Table) -> None:
    """PyIceberg cannot write such tables yet; when it can, the catalog has to assign the row ids."""
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    table.append(numbers(1))
    change = TableChange(NAME, late._requirements, late._updates)

    assert must_rebase(change, table.metadata)
    assert not must_rebase(change, table.metadata.model_copy(update={"format_version": 3}))
