"""Large parts of tables' records in rows of their own, and the index of uuids."""

from typing import TypeVar
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import LongType, NestedField

from endive.catalog import KVCatalog
from endive.catalog.maintenance.row_check import check_rows
from endive.catalog.model import keys, table_parts
from endive.catalog.model.catalog_records import CatalogRecord, TableRecord, decode_table, decoded_table
from endive.catalog.model.table_parts import PartCache, digest_of
from endive.catalog.model.transaction import KeyValue, TransactionFunction
from endive.catalog.operations import stored_tables, uuid_index
from endive.catalog.operations.table_rows import find_table, require_table
from endive.catalog.operations.uuid_index import find_by_uuid, require_unused_uuid
from endive.catalog.pyiceberg import EndiveCatalog
from endive.errors import AlreadyInCatalogError, CorruptObjectError
from endive.protocol.requests import Steps
from tests.catalog.stand_in import DictStore, DictTransaction, run
from tests.catalog.tables import NUMBERS

T = TypeVar("T")
COLUMNS = 200
SCHEMAS = 21
WIDE = Schema(*(NestedField(n, f"a_column_with_a_name_{n}", LongType(), required=False) for n in range(1, COLUMNS + 1)))
ROW = pa.table({"a_column_with_a_name_1": pa.array([1], pa.int64())})


class Bytes(DictStore):
    """Remembers the rows of the last transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[bytes, bytes | None] = {}

    def _transact(self, function: TransactionFunction[T]) -> T:
        before = dict(self.rows)
        result = super()._transact(function)
        self.written = {key: body for key, body in self.rows.items() if before.get(key) != body}
        return result

    def bytes_of(self, space: str) -> int:
        return sum(len(body or b"") for key, body in self.written.items() if key.startswith(space.encode()))


@pytest.fixture
def store() -> Bytes:
    return Bytes()


@pytest.fixture
def wide(catalog: EndiveCatalog) -> EndiveCatalog:
    """A catalog with a table of 21 schemas, of 200 columns and more."""
    catalog.create_table("db.wide", WIDE)
    added = [NestedField(COLUMNS + n, f"added_{n}", LongType(), required=False) for n in range(1, SCHEMAS)]
    schemas = [Schema(*WIDE.fields, *added[:n], schema_id=n) for n in range(1, SCHEMAS)]
    catalog.kv.commit("db.wide", (), tuple(AddSchemaUpdate(schema_=one) for one in schemas))
    catalog.kv.commit("db.wide", (), (SetCurrentSchemaUpdate(schema_id=SCHEMAS - 1),))
    return catalog


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that has just started."""
    cache = PartCache(table_parts.HELD_BYTES_MAX)
    monkeypatch.setattr(table_parts, "parts_held", cache)
    monkeypatch.setattr(stored_tables, "parts_held", cache)
    decoded_table._records.clear()
    decoded_table.bytes_held = 0


def record_of(store: DictStore, name: str) -> TableRecord:
    return store.read(lambda tx: require_table(tx, ("db", name)))


def test_a_commit_writes_what_changed(wide: EndiveCatalog, store: Bytes) -> None:
    whole = len(record_of(store, "wide").encoded())
    assert whole > 280_000
    wide.load_table("db.wide").append(ROW)
    assert store.bytes_of(keys.PARTS) == 0
    assert store.bytes_of(keys.TABLES) < 5_000
    assert sum(len(body or b"") for body in store.written.values()) < 15_000  # most of it counts nulls by column


def test_a_change_of_the_schema_writes_one_schema(wide: EndiveCatalog, store: Bytes) -> None:
    with wide.load_table("db.wide").update_schema() as update:
        update.add_column("last", LongType())
    assert len([key for key in store.written if key.startswith(keys.PARTS.encode())]) == 1
    assert store.bytes_of(keys.PARTS) < 20_000
    assert len(wide.load_table("db.wide").metadata.schemas) == SCHEMAS + 1


def test_a_record_is_the_same_with_and_without_parts(
    wide: EndiveCatalog, store: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = record_of(store, "wide")
    assert decode_table(before.encoded()) == before
    forget(monkeypatch)
    assert record_of(store, "wide") == before
    assert record_of(store, "wide").stored_parts == before.stored_parts
    assert len(before.stored_parts) == SCHEMAS


@pytest.mark.parametrize("version", ["1", "2"])
def test_large_properties_specs_and_format_1(
    catalog: EndiveCatalog, store: Bytes, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    properties = {"format-version": version, "part": "x" * 10_000, "parts": '"parts":{'}
    table = catalog.create_table("db.wide", WIDE, properties=properties)
    table.append(ROW)
    before = record_of(store, "wide")
    forget(monkeypatch)
    assert record_of(store, "wide") == before
    assert catalog.load_table("db.wide").properties["part"] == "x" * 10_000
    assert len(before.stored_parts) == 2  # format 1 has the current schema twice, in one row
    decoded_table._records.clear()
    assert record_of(store, "wide") == before
    table.append(ROW)
    assert store.bytes_of(keys.PARTS) == 0
    with catalog.load_table("db.wide").transaction() as tx:
        tx.remove_properties("part")
    assert len(record_of(store, "wide").stored_parts) == len(before.stored_parts) - 1
    assert len([key for key in store.rows if key.startswith(keys.PARTS.encode())]) == len(before.stored_parts) - 1


def test_small_tables_have_no_parts_and_keep_format_1(catalog: EndiveCatalog, store: Bytes) -> None:
    catalog.create_table("db.small", NUMBERS)
    assert CatalogRecord.decoded(store.rows[keys.CATALOG]).format_version == 1
    assert not [key for key in store.rows if key.startswith(keys.PARTS.encode())]
    assert store.rows[keys.table_key(("db", "small"))] == record_of(store, "small").encoded()


def test_a_table_with_parts_has_format_2(wide: EndiveCatalog, store: Bytes) -> None:
    assert CatalogRecord.decoded(store.rows[keys.CATALOG]).format_version == 2


def test_a_whole_record_of_an_older_version_is_read_and_split_by_the_next_commit(
    wide: EndiveCatalog, store: Bytes
) -> None:
    old = record_of(store, "wide")
    for key in [key for key in store.rows if key.startswith((keys.PARTS.encode(), keys.UUIDS.encode()))]:
        del store.rows[key]
    store.rows[keys.table_key(("db", "wide"))] = old.encoded()
    decoded_table._records.clear()
    assert record_of(store, "wide").stored_parts == frozenset()
    wide.load_table("db.wide").append(ROW)
    assert len(record_of(store, "wide").stored_parts) == SCHEMAS
    assert wide.kv.check() == []


def test_a_part_keeps_its_row_whatever_its_size(
    wide: EndiveCatalog, store: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release with another limit must not take the rows away that a commit which is under way refers to."""
    before = record_of(store, "wide").stored_parts
    monkeypatch.setattr(table_parts, "INLINE_BYTES_MAX", 10_000_000)
    wide.load_table("db.wide").append(ROW)
    assert record_of(store, "wide").stored_parts == before


def test_a_missing_or_damaged_part_is_found(wide: EndiveCatalog, store: Bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [key for key in store.rows if key.startswith(keys.PARTS.encode())]
    store.rows[parts[0]] = b"{}"
    del store.rows[parts[1]]
    findings = "\n".join(wide.kv.check())
    assert f"{parts[0].decode()}: the part of a table's record is damaged" in findings
    assert f"{parts[1].decode()}: a part of the table's record is not there" in findings
    forget(monkeypatch)
    with pytest.raises(CorruptObjectError, match=r"its part .* is not there"):
        wide.load_table("db.wide")


def test_parts_go_with_their_table(wide: EndiveCatalog, store: Bytes) -> None:
    wide.rename_table("db.wide", "db.other")
    assert wide.kv.check() == []
    wide.drop_table("db.other")
    assert not [key for key in store.rows if key.startswith((keys.PARTS.encode(), keys.UUIDS.encode()))]
    assert wide.kv.check() == []


def test_parts_come_back_with_a_restored_table(
    wide: EndiveCatalog, store: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = wide.load_table("db.wide").metadata.schemas
    wide.kv.create_checkpoint("then")
    wide.drop_table("db.wide")
    wide.kv.restore("then")
    forget(monkeypatch)
    assert wide.load_table("db.wide").metadata.schemas == before
    assert wide.kv.check() == []


def test_a_digest_is_of_the_content() -> None:
    assert digest_of(b"a") != digest_of(b"b")
    assert len(digest_of(b"a")) == 32


def test_the_cache_of_parts_is_bounded() -> None:
    cache = PartCache(100)
    for number in range(10):
        cache.add(str(number), b"x" * 30, 30)
    cache.add("9", b"y", 1)
    assert [cache.get(str(number)) for number in range(10)] == [None] * 7 + [b"x" * 30] * 3


# The index of uuids.


class CountingReads(DictTransaction):
    """Counts the rows that are read."""

    read = 0

    def get(self, key: bytes) -> Steps[bytes | None]:
        self.read += 1
        return super().get(key)

    def scan(self, prefix: bytes) -> Steps[tuple[KeyValue, ...]]:
        rows = yield from super().scan(prefix)
        self.read += len(rows)
        return rows


TABLES = 1_000


def findings_of(store: DictStore) -> list[str]:
    return [one.place for one in store.read(check_rows).findings]


@pytest.fixture
def many(kv: KVCatalog, store: Bytes) -> KVCatalog:
    """A catalog of 1,000 tables, as an older version would have written it: without an index."""
    kv.create_namespace("db")
    kv.create_table("db.t0", NUMBERS)
    body = store.rows[keys.table_key(("db", "t0"))]
    old = str(record_of(store, "t0").uuid).encode()
    for number in range(1, TABLES):
        own = body.replace(b'"t0"', f'"t{number}"'.encode()).replace(old, str(UUID(int=number)).encode())
        store.rows[keys.table_key(("db", f"t{number}"))] = own
    return kv


def reads_of(store: DictStore, uuid: UUID) -> int:
    tx = CountingReads(store.rows)
    run(lambda tx: require_unused_uuid(tx, uuid), tx)
    return tx.read


def test_registering_reads_a_few_rows_among_a_thousand_tables(many: KVCatalog, store: Bytes) -> None:
    assert reads_of(store, UUID(int=TABLES)) > TABLES
    many.register_table("db.copy", _copy(many))
    assert CatalogRecord.decoded(store.rows[keys.CATALOG]).has_uuid_index
    assert reads_of(store, UUID(int=TABLES)) <= 3
    with pytest.raises(AlreadyInCatalogError, match=r"db\.copy"):
        many.register_table("db.again", many.load_table("db.copy").metadata_location)
    assert findings_of(store) == []


def _copy(kv: KVCatalog) -> str:
    """Return a metadata file of a table that is not in the catalog."""
    other = KVCatalog(DictStore(), kv.warehouse, create=True)
    other.create_namespace("db")
    return other.create_table("db.copy", NUMBERS).metadata_location


def test_the_index_follows_create_rename_drop_and_restore(many: KVCatalog, store: Bytes) -> None:
    many.register_table("db.copy", _copy(many))
    many.create_checkpoint("then")
    new = many.create_table("db.new", NUMBERS)
    copy = many.load_table("db.copy").uuid
    many.rename_table("db.copy", "db.renamed")
    assert store.read(lambda tx: find_by_uuid(tx, copy)).identifier == ("db", "renamed")  # type: ignore[union-attr]
    assert store.read(lambda tx: find_by_uuid(tx, new.uuid)).identifier == ("db", "new")  # type: ignore[union-attr]
    assert findings_of(store) == []
    many.drop_table("db.renamed")
    assert store.read(lambda tx: find_by_uuid(tx, copy)) is None
    many.restore("then")
    assert store.read(lambda tx: find_by_uuid(tx, copy)).identifier == ("db", "copy")  # type: ignore[union-attr]
    assert store.read(lambda tx: find_by_uuid(tx, new.uuid)) is None
    assert findings_of(store) == []


def test_rows_of_tables_that_an_older_version_dropped_leave_the_index(many: KVCatalog, store: Bytes) -> None:
    stale = UUID(int=TABLES + 1)
    store.rows[keys.uuid_key(stale)] = keys.table_key(("db", "t1"))
    many.register_table("db.copy", _copy(many))
    assert keys.uuid_key(stale) not in store.rows


def test_few_tables_have_no_index(catalog: EndiveCatalog, store: Bytes) -> None:
    catalog.register_table("db.copy", _copy(catalog.kv))
    record = CatalogRecord.decoded(store.rows[keys.CATALOG])
    assert (record.format_version, record.has_uuid_index) == (1, False)
    assert uuid_index.INDEX_FROM < TABLES


def test_a_wrong_index_is_found(many: KVCatalog, store: Bytes) -> None:
    many.register_table("db.copy", _copy(many))
    uuid = store.read(lambda tx: find_table(tx, ("db", "t5"))).uuid  # type: ignore[union-attr]
    del store.rows[keys.uuid_key(uuid)]
    assert findings_of(store) == [keys.uuid_key(uuid).decode()]
