"""Round trips of a cold `load_catalog` and `load_table`, at an age of two thousand snapshots.

Counted are the store's requests. With metadata files that are written before the acknowledgement, a load also asks
whether the file exists: `test_object_files` counts that request.
"""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary

from endive.catalog import KVCatalog
from endive.catalog.connection import OPTIONS
from endive.catalog.model.catalog_records import SnapshotRecord, encoded_history
from endive.catalog.model.keys import history_key, snapshot_key
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.stored_tables import put_record
from endive.catalog.operations.table_rows import require_table
from endive.kv import Store
from endive.kv.sst.reading import WHOLE_BYTES
from endive.objects import MemoryStore
from endive.protocol.requests import Steps
from tests.catalog.tables import NAME, NUMBERS

SNAPSHOTS = 2_001
PER_COMMIT = 58
STEP = 2_654_435_761
"""So that snapshot ids are not in the order of time."""
NOW_MS = 1_700_000_000_000
PROPERTIES = {"endive.metadata-json": "background"}
QUIET = replace(OPTIONS, poll_interval_ms=1e9, collect_interval_ms=1e9)


def snapshot(number: int) -> Snapshot:
    summary = Summary(Operation.APPEND, **{f"fact-{n}": sha256(f"{number}-{n}".encode()).hexdigest() for n in range(8)})
    return Snapshot(
        snapshot_id=number * STEP % 2**61,
        parent_snapshot_id=(number - 1) * STEP % 2**61 if number > 1 else None,
        sequence_number=number,
        timestamp_ms=NOW_MS + number,
        manifest_list=f"file:///lake/db/t/metadata/snap-{number * STEP % 2**61}.avro",
        summary=summary,
        schema_id=0,
    )


def grow(store: Store, first: int, end: int) -> None:
    """Put the rows of snapshots, as commits would have."""

    def put(tx: StoreTransaction) -> Steps[None]:
        record = yield from require_table(tx, NAME)
        for number in range(first, end):
            one = SnapshotRecord(record.uuid, number, snapshot(number), "none")
            tx.put(snapshot_key(record.uuid, one.snapshot.snapshot_id), one.encoded())
            line = SnapshotLogEntry(snapshot_id=one.snapshot.snapshot_id, timestamp_ms=NOW_MS + number)
            tx.put(history_key(record.uuid, number), encoded_history(line))
        yield from put_record(tx, replace(record, snapshots_made=end, history_length=end))

    store.transact(put)


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> MemoryStore:
    """Return a catalog with a table of 2,001 snapshots and some beside, written by short-lived processes."""
    objects = MemoryStore()
    warehouse = tmp_path_factory.mktemp("warehouse").as_uri()
    options = replace(QUIET, compact_entries=3)
    for first in range(1, SNAPSHOTS + 1, PER_COMMIT):
        with Store(objects, "shared", options) as store:
            kv = KVCatalog(store, warehouse, PROPERTIES, create=True, clock=lambda: NOW_MS)
            if first == 1:
                kv.create_namespace("db")
                kv.create_table(NAME, NUMBERS)
            kv.create_table(f"db.beside{first}", NUMBERS)
            grow(store, first, min(first + PER_COMMIT, SNAPSHOTS + 1))
    return objects


def round_trips(store: Store, action: Callable[[], object]) -> int:
    before = store.driver.requests.sequential
    action()
    return store.driver.requests.sequential - before


def test_a_cold_catalog_and_table_are_loaded_in_few_round_trips(aged: MemoryStore) -> None:
    store = Store(aged, "shared", replace(QUIET, compact_here=False))
    kv = KVCatalog(store, "", PROPERTIES)
    assert store.driver.requests.sequential <= 5  # five to open the store, with the catalog's record
    assert max(run.size_bytes for run in store.manifest.value.runs) > WHOLE_BYTES

    assert round_trips(store, lambda: kv.load_table(NAME)) <= 3
    assert len(kv.load_table(NAME).metadata.snapshots) == SNAPSHOTS
    assert round_trips(store, lambda: kv.load_table(NAME)) == 2  # is there anything new?
    assert round_trips(store, lambda: kv.list_tables("db")) <= 3
    store.close()
