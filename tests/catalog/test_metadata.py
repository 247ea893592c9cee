"""Metadata that is shared instead of copied: equal to what PyIceberg works out, and safe to hand out."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from endive.catalog import KVCatalog
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.updates import updated
from endive.catalog.model.catalog_records import (
    SnapshotRecord,
    TableRecord,
    decode_snapshot,
    decode_table,
)
from endive.catalog.model.encoding import DecodeCache, SchemaJson
from endive.catalog.model.keys import SNAPSHOTS, TABLES
from endive.catalog.model.metadata_json import JoinedJson, metadata_json
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.protocol.requests import Steps
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers


@pytest.fixture
def written(endive: EndiveCatalog) -> EndiveCatalog:
    endive.create_namespace("db")
    table = endive.create_table(NAME, NUMBERS, properties={"kept": "yes"})
    table.append(numbers(1, 2))
    table.append(numbers(3))
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "first").commit()
    with table.update_schema() as update:
        update.add_column("m", NUMBERS.find_type("n"))
    return endive


def bodies(catalog: EndiveCatalog, space: str) -> list[bytes]:
    def look(tx: StoreTransaction) -> Steps[list[bytes]]:
        rows = yield from tx.scan(space.encode())
        return [body for _, body in rows]

    return catalog.kv.store.read(look)


def test_a_cached_record_equals_its_decoded_json(written: EndiveCatalog) -> None:
    for body in bodies(written, TABLES):
        assert TableRecord.decoded(body) == decode_table(body)
    assert len(bodies(written, SNAPSHOTS)) == 2
    for body in bodies(written, SNAPSHOTS):
        assert SnapshotRecord.decoded(body) == decode_snapshot(body)


def test_a_cache_of_records_forgets_the_oldest_and_decodes_it_again() -> None:
    asked: list[bytes] = []
    cache = DecodeCache(lambda body: asked.append(body) or len(body), bytes_max=12)  # type: ignore[func-returns-value]
    cache.add(b"one", 3)
    cache.add(b"three", 5)
    assert (cache(b"one"), cache(b"three"), asked) == (3, 5, [])
    cache.add(b"three", 5)
    assert cache.bytes_held == 8
    cache.add(b"eleven", 6)

    assert cache.bytes_held == 11
    assert (cache(b"one"), asked) == (3, [b"one"])
    assert cache.bytes_held == 9  # and what was oldest then, has gone too


def test_a_record_that_is_larger_than_its_cache_is_not_kept() -> None:
    cache = DecodeCache(len, bytes_max=3)
    assert (cache(b"four"), cache.bytes_held) == (4, 0)


@pytest.mark.parametrize("exclude_none", [True, False])
def test_metadata_json_is_what_pyiceberg_writes(written: EndiveCatalog, exclude_none: bool) -> None:
    table = written.load_table(NAME)
    with table.update_spec() as update:
        update.add_identity("n")
    for metadata in (table.metadata, written.create_table("db.empty", NUMBERS).metadata):
        expected = json.loads(metadata.model_dump_json(exclude_none=exclude_none))
        for _ in range(2):  # encoded, then cached
            assert json.loads(metadata_json(metadata, exclude_none)) == expected


def test_lists_that_grow_are_joined_once() -> None:
    encoded: list[str] = []
    joined = JoinedJson[str](lambda part: encoded.append(part) or part.encode())  # type: ignore[func-returns-value]
    first = ["a1", "b2"]
    assert (joined([]), joined(first), joined([*first, "c3"])) == (b"", b"a1,b2", b"a1,b2,c3")
    assert encoded == ["a1", "b2", "c3"]

    assert joined([first[0], "x"]) == b"a1,x"  # a part was removed
    assert joined(first) == b"a1,b2"
    assert joined([first[0]]) == b"a1"


def test_changing_the_properties_of_a_loaded_table_changes_no_other_copy(written: EndiveCatalog) -> None:
    written.load_table(NAME).properties["kept"] = "no"
    written.kv.load_table(NAME).metadata.properties.clear()

    assert written.load_table(NAME).properties == {"kept": "yes"}


def test_tables_know_their_new_state_after_a_commit_without_another_request(endive: EndiveCatalog) -> None:
    endive.create_namespace("db")
    table = endive.create_table(NAME, NUMBERS, properties={"endive.metadata-json": "background"})
    before = endive.kv.store.stats()["refreshes"]  # type: ignore[attr-defined]
    with table.transaction() as transaction:
        transaction.set_properties({"a": "1"})

    assert table.properties["a"] == "1"
    assert endive.kv.store.stats()["refreshes"] == before  # type: ignore[attr-defined]


CHANGES: dict[str, Callable[[int], list[TableUpdate]]] = {
    "set": lambda _: [SetPropertiesUpdate(updates={"kept": "no", "new": "1"})],
    "set and remove": lambda _: [
        SetPropertiesUpdate(updates={"new": "1"}),
        RemovePropertiesUpdate(removals=["kept"]),
    ],
    "branch": lambda first: [
        SetSnapshotRefUpdate(
            ref_name="b",
            type=SnapshotRefType.BRANCH,
            snapshot_id=first,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
    ],
    "drop the tag": lambda _: [RemoveSnapshotRefUpdate(ref_name="first")],
    "nothing": lambda _: [],
}


@pytest.mark.parametrize("previous", ["", "file:///somewhere/00001.metadata.json"])
@pytest.mark.parametrize("change", CHANGES)
def test_updates_give_what_pyiceberg_gives(written: EndiveCatalog, change: str, previous: str) -> None:
    base = written.load_table(NAME).metadata
    before = base.model_copy(deep=True)
    updates = tuple(CHANGES[change](base.snapshots[0].snapshot_id))
    expected = update_table_metadata(base, updates, metadata_location=previous or None)
    found = updated(base, updates, previous, expected.last_updated_ms)

    assert found == expected
    assert base == before
    assert (found is base) == (change == "nothing")


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
@pytest.mark.parametrize("use", ["partition", "sort"])
def test_a_column_that_the_table_is_partitioned_or_sorted_by_cannot_go(
    catalog: EndiveCatalog, mode: str, use: str
) -> None:
    """Whatever a client thinks of it: the table could not be read any more."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))
    order = SortOrder(SortField(1, transform=IdentityTransform()))
    catalog.kv.create_table(
        NAME,
        Schema(*NUMBERS.fields, NestedField(2, "m", LongType(), required=False)),
        partition_spec=spec if use == "partition" else UNPARTITIONED_PARTITION_SPEC,
        sort_order=order if use == "sort" else UNSORTED_SORT_ORDER,
        properties={"endive.metadata-json": mode},
    )
    before = catalog.kv.load_table(NAME)
    without = Schema(NestedField(2, "m", LongType(), required=False), schema_id=1)

    with pytest.raises(ValidationError, match="Cannot find source column"):
        catalog.kv.commit(NAME, (), (AddSchemaUpdate(schema_=without), SetCurrentSchemaUpdate(schema_id=1)))

    assert catalog.kv.load_table(NAME) == before


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_time_does_not_go_backwards_in_a_table(store: DictStore, warehouse: str, mode: str) -> None:
    """The clock of a committer may be behind that of the committer before it."""
    with KVCatalog(store, warehouse, {"endive.metadata-json": mode}, create=True, clock=lambda: 1_000) as kv:
        kv.create_namespace("db")
        table = EndiveCatalog.on(kv).create_table(NAME, NUMBERS)
        late = EndiveCatalog.on(kv).load_table(NAME)
        table.append(numbers(1))
        late.append(numbers(2))  # which is put on top
        appended = kv.load_table(NAME).metadata
        kv.update_properties(NAME, {"a": "1"})
        changed = kv.load_table(NAME).metadata
        kv.roll_back(NAME, appended.snapshots[0].snapshot_id)
        rolled_back = kv.load_table(NAME).metadata

    assert appended.snapshots[0].timestamp_ms <= appended.snapshots[1].timestamp_ms
    assert appended.last_updated_ms < changed.last_updated_ms < rolled_back.last_updated_ms
    assert rolled_back.snapshot_log[-1].timestamp_ms == rolled_back.last_updated_ms


def test_a_transaction_sees_what_pyicebergs_would(written: EndiveCatalog) -> None:
    table = written.load_table(NAME)
    transaction = table.transaction()
    assert transaction.table_metadata is table.metadata
    transaction.set_properties({"new": "1"})
    transaction.append(numbers(4))
    theirs = update_table_metadata(table.metadata, transaction._updates)

    assert transaction.table_metadata.model_copy(update={"last_updated_ms": theirs.last_updated_ms}) == theirs
    assert len(table.metadata.snapshots) == 2


@pytest.mark.parametrize("name", ["v1.metadata.json", "v1.gz.metadata.json"])
def test_a_metadata_file_is_what_pyiceberg_writes(written: EndiveCatalog, tmp_path: Path, name: str) -> None:
    metadata = written.load_table(NAME).metadata
    ours, theirs = str(tmp_path / "ours" / name), str(tmp_path / "theirs" / name)
    written.kv.files.write(metadata, ours)
    ToOutputFile.table_metadata(metadata, written.kv.files.io(theirs).new_output(theirs))

    read = gzip.decompress if ".gz." in name else bytes
    assert read(Path(ours).read_bytes()) == read(Path(theirs).read_bytes())
    assert written.kv.files.read(ours) == metadata


def test_connections_are_kept_for_the_same_scheme_and_properties() -> None:
    files = MetadataFiles({"s3.endpoint": "http://127.0.0.1:1"})
    one = files.io("s3://bucket/a", {"s3.region": "x"})

    assert files.io("s3://other/b", {"s3.region": "x"}) is one
    assert files.io("s3://bucket/a", {"s3.region": "y"}) is not one
    assert files.io("/a/path").properties == {"s3.endpoint": "http://127.0.0.1:1"}


def test_the_json_of_a_schema_is_kept_for_that_schema_alone() -> None:
    dumped = SchemaJson(count_max=1)
    other = Schema(NestedField(1, "other", LongType()))
    first = dumped(NUMBERS)

    assert dumped(NUMBERS) is first
    assert dumped(other) == other.model_dump(mode="json") != first
    assert dumped(NUMBERS) == first
    assert dumped(NUMBERS) is not first  # it was forgotten meanwhile
