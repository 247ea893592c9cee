"""Tables whose metadata file is written in the background: the next commit needs no base, and that is safe."""

from typing import TypeVar

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable, Table

from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.keys import files_of, table_key
from endive.catalog.model.names import table_of
from endive.catalog.model.transaction import TransactionFunction
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.commits.interrupted import Interrupted, setting
from tests.catalog.tables import NAME, NUMBERS, numbers

T = TypeVar("T")

LATER = {"endive.metadata-json": "background"}
AT_ONCE = {"endive.metadata-json": "before-acknowledgement"}


@pytest.fixture
def followed(catalog: EndiveCatalog) -> Table:
    """A table whose last commit from this process was applied in the transaction."""
    table = catalog.create_table(NAME, NUMBERS, properties=LATER)
    catalog.kv.commit(NAME, (), setting(a="0"))
    return table


class CountedReads(Interrupted):
    """Counts the reads."""

    reads = 0

    def read_cached(self, function: TransactionFunction[T]) -> T:
        self.reads += 1
        return super().read_cached(function)


@pytest.fixture
def store() -> CountedReads:
    return CountedReads()


def test_a_commit_loads_no_base(catalog: EndiveCatalog, followed: Table, store: CountedReads) -> None:
    catalog.kv._publisher.close()  # it would write the file, in a transaction of its own
    before, reads = store.transactions, store.reads
    catalog.kv.commit(NAME, (), setting(a="1"))

    assert (store.transactions - before, store.reads - reads) == (1, 0)
    assert followed.refresh().properties["a"] == "1"


@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_the_file_comes_first_as_soon_as_the_table_asks_for_it(
    catalog: EndiveCatalog, rival: EndiveCatalog, followed: Table, store: Interrupted, is_meanwhile: bool
) -> None:
    if is_meanwhile:
        store.before = lambda: rival.kv.update_properties(NAME, AT_ONCE)
    else:
        rival.kv.update_properties(NAME, AT_ONCE)
    catalog.kv.commit(NAME, (), setting(a="1"))

    location = rival.load_table(NAME).metadata_location
    assert StaticTable.from_metadata(location).properties["a"] == "1"


def test_a_table_of_the_same_name_is_created_with_its_file(
    catalog: EndiveCatalog, followed: Table, store: Interrupted
) -> None:
    catalog.drop_table(NAME)
    catalog.kv._publisher.close()  # it would write the file a moment later
    with catalog.create_table_transaction(NAME, NUMBERS, properties=LATER) as transaction:
        transaction.set_properties({"b": "1"})

    record = TableRecord.decoded(store.rows[table_key(table_of(NAME))])
    assert not record.is_dirty
    assert StaticTable.from_metadata(record.metadata_location).properties["b"] == "1"


def test_a_table_that_is_gone_is_said_to_be(catalog: EndiveCatalog, rival: EndiveCatalog, followed: Table) -> None:
    rival.drop_table(NAME)

    with pytest.raises(NoSuchTableError), followed.transaction() as transaction:
        transaction.set_properties({"a": "1"})


def test_an_unknown_outcome_is_found_out(catalog: EndiveCatalog, followed: Table, store: Interrupted) -> None:
    version = catalog.kv.load_table(NAME).version
    store.answers_lost = 1
    answer = catalog.kv.commit(NAME, (), setting(a="1"))

    assert answer.version == version + 1 == catalog.kv.load_table(NAME).version


def test_the_files_of_a_snapshot_are_recorded(catalog: EndiveCatalog, followed: Table, store: Interrupted) -> None:
    followed.append(numbers(1))
    snapshot_id = followed.metadata.current_snapshot_id

    assert [key for key in store.rows if key.startswith(files_of(followed.metadata.table_uuid, snapshot_id))]
