"""Commits that contradict each other, of one table and of several at once."""

import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.types import LongType

from endive.catalog import TableChange
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.catalog.settings import ATTEMPTS
from endive.errors import CommitConflictError, CommitRetriesExhaustedError
from tests.catalog.commits.interrupted import Interrupted, files_of, rows_of, setting
from tests.catalog.tables import NAME, NUMBERS, numbers

# Real conflicts.


def test_a_real_conflict_names_both_sides(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    late = catalog.load_table(NAME).transaction()
    late.overwrite(numbers(2))
    table.append(numbers(3))

    mine = [one.snapshot for one in late._updates if isinstance(one, AddSnapshotUpdate)]
    with pytest.raises(CommitConflictError) as caught:
        catalog.kv.commit(NAME, late._requirements, late._updates)
    words = str(caught.value)
    assert str(mine[-1].snapshot_id) in words
    assert str(table.metadata.current_snapshot_id) in words
    assert "delete" in words
    assert "append" in words


def test_a_lost_race_is_seen_inside_the_transaction_too(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    catalog.kv.update_properties(NAME, {ATTEMPTS: "1"})  # it need not be computed again to be seen
    late = catalog.load_table(NAME)

    def meanwhile() -> None:
        with rival.load_table(NAME).update_schema() as update:
            update.add_column("m", LongType())

    change = late.update_schema()
    change.add_column("k", LongType())
    store.before = meanwhile
    files = len([name for name in files_of(table) if name.endswith("metadata.json")])

    with pytest.raises(CommitFailedException, match="current schema id has changed"):
        change.commit()
    assert len([name for name in files_of(table) if name.endswith("metadata.json")]) == files + 1


def test_changes_that_commute_are_prepared_again(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    store.before = lambda: rival.kv.update_properties(NAME, {"theirs": "1"})

    catalog.kv.update_properties(NAME, {"ours": "2"})

    loaded = catalog.kv.load_table(NAME)
    assert loaded.metadata.properties == {"theirs": "1", "ours": "2"}
    assert loaded.version == 2
    shown = StaticTable.from_metadata(loaded.metadata_location)
    assert shown.metadata == loaded.metadata
    assert len([name for name in files_of(table) if name.endswith("metadata.json")]) == 3


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_property_removed_by_a_concurrent_commit_is_a_conflict(
    catalog: EndiveCatalog, rival: EndiveCatalog, store: Interrupted, mode: str
) -> None:
    catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode, "a": "1"})
    store.before = lambda: rival.kv.update_properties(NAME, removals=["a"])

    with pytest.raises(CommitConflictError, match="'a' was already removed by a concurrent commit"):
        catalog.kv.update_properties(NAME, {"b": "2"}, removals=["a"])

    assert catalog.kv.load_table(NAME).metadata.properties == {"endive.metadata-json": mode}


def test_a_commit_that_always_loses_says_which_limit_it_hit(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    catalog.kv.update_properties(NAME, {ATTEMPTS: "3"})
    losses = 0

    def win() -> None:
        nonlocal losses
        losses += 1
        rival.kv.update_properties(NAME, {"winner": str(losses)})
        store.before = win

    store.before = win
    with pytest.raises(CommitRetriesExhaustedError, match=r"lost 3 races.*endive\.commit\.attempts"):
        catalog.kv.update_properties(NAME, {"loser": "1"})
    store.before = None
    assert "loser" not in catalog.kv.load_table(NAME).metadata.properties


def test_a_table_dropped_while_it_is_written(rival: EndiveCatalog, table: Table, store: Interrupted) -> None:
    store.before = lambda: rival.drop_table(NAME)

    with pytest.raises(NoSuchTableError, match=r"db\.t; it may have been dropped or renamed"):
        table.append(numbers(1))


def test_another_table_of_the_name_and_version_is_not_taken_for_the_one_that_was_written(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    created: list[Table] = []

    def replace_it() -> None:
        rival.drop_table(NAME)
        created.append(rival.create_table(NAME, NUMBERS))

    store.before = replace_it
    catalog.kv.update_properties(NAME, {"a": "1"})  # of whichever table has the name

    loaded = catalog.kv.load_table(NAME)
    assert loaded.uuid == created[0].metadata.table_uuid
    assert (loaded.version, loaded.metadata.properties) == (1, {"a": "1"})
    assert catalog.kv.check() == []


def test_a_table_is_not_created_in_a_namespace_that_is_dropped_meanwhile(
    catalog: EndiveCatalog, rival: EndiveCatalog, store: Interrupted
) -> None:
    transaction = catalog.create_table_transaction(NAME, NUMBERS)
    store.before = lambda: rival.drop_namespace("db")

    with pytest.raises(NoSuchNamespaceError, match="db"):
        transaction.commit_transaction()

    assert [key for key in store.rows if key.startswith(b"__tables/")] == []


def test_a_table_renamed_while_it_is_written(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    store.before = lambda: rival.rename_table(NAME, "db.other")

    with pytest.raises(NoSuchTableError, match="dropped or renamed"):
        table.append(numbers(1))
    assert catalog.load_table("db.other").scan().to_arrow().num_rows == 0


# Several tables at once.


def test_several_tables_change_together_or_not_at_all(catalog: EndiveCatalog, table: Table) -> None:
    catalog.create_table("db.u", NUMBERS)
    together = [catalog.load_table(NAME).transaction(), catalog.load_table("db.u").transaction()]
    for number, transaction in enumerate(together):
        transaction.append(numbers(number))
    table.append(numbers(7))

    catalog.commit_transactions(together)  # the first is rebased

    assert rows_of(table) == [0, 7]
    assert rows_of(catalog.load_table("db.u")) == [1]

    before = files_of(table)
    with pytest.raises(CommitConflictError):
        catalog.kv.commit_many(
            [
                TableChange(NAME, (), setting(a="1")),
                TableChange(("db", "u"), together[0]._requirements, setting(b="2")),
            ]
        )
    assert files_of(table) == before
    assert catalog.kv.load_table(NAME).metadata.properties == {}
    assert catalog.kv.check() == []


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
def test_of_several_tables_an_overwrite_that_found_nothing_to_delete_does_not_move(
    catalog: EndiveCatalog, table: Table
) -> None:
    append, overwrite = catalog.create_table("db.other", NUMBERS).transaction(), table.transaction()
    append.append(numbers(5))
    overwrite.overwrite(numbers(2), overwrite_filter="n == 1000")

    catalog.load_table(NAME).append(numbers(1000))

    with pytest.raises(CommitFailedException, match="main was created concurrently"):
        catalog.commit_transactions([append, overwrite])
    assert catalog.load_table("db.other").scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("order", [1, -1])
def test_a_table_that_has_moved_on_holds_all_others_back(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted, order: int
) -> None:
    """Both were worked out before; that one of them fits no longer is seen inside the transaction."""
    catalog.create_table("db.u", NUMBERS, properties={ATTEMPTS: "1"})
    changes = [TableChange(NAME, (), setting(a="1")), TableChange(("db", "u"), (), setting(b="2"))]
    store.before = lambda: rival.kv.update_properties("db.u", {"theirs": "1"})

    with pytest.raises(CommitRetriesExhaustedError):
        catalog.kv.commit_many(changes[::order])

    assert catalog.kv.load_table(NAME).metadata.properties == {}
    assert "b" not in catalog.kv.load_table("db.u").metadata.properties
    assert catalog.kv.check() == []
