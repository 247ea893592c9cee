"""Section "Catalog": its values, its three implementations, its commit protocols."""

from dataclasses import FrozenInstanceError, fields

import pytest

from endive.errors import InvariantError
from endive.rng import Stream
from endive.sim.catalog import (
    AppendCatalog,
    CASCatalog,
    CatalogSnapshot,
    InstantCatalog,
    IntentionRecord,
    TableMetadata,
)
from endive.sim.latency import ExponentialLatency, FixedLatency
from endive.sim.storage import Profile, ProfiledProvider
from tests.instruments import drain, fixed_provider, session, waits
from tests.support import append_catalog_of, catalog_of, state_of

TABLE = TableMetadata(table_id=0, version=3, num_partitions=2, partition_versions=(1, 2))

# Values.


def test_table_metadata_changes_by_copies() -> None:
    assert TABLE.with_version(4) == TableMetadata(0, 4, 2, (1, 2))
    assert TABLE.with_partition_version(1, 9) == TableMetadata(0, 3, 2, (1, 9))
    assert TableMetadata(0, 3, 2, (1, 2)) == TABLE


def test_values_are_frozen_and_have_the_specified_fields() -> None:
    assert [field.name for field in fields(CatalogSnapshot)] == ["seq", "tables", "timestamp_ms"]
    specified = ["txn_id", "expected_seq", "tables_written", "partitions_written", "size_bytes"]
    assert [field.name for field in fields(IntentionRecord)][:5] == specified
    assert IntentionRecord(1, 0, {0: 1}).size_bytes == 100
    with pytest.raises(FrozenInstanceError):
        TABLE.version = 4  # type: ignore[misc]


def test_a_snapshot_finds_tables_and_partition_versions() -> None:
    snapshot = CatalogSnapshot(7, (TABLE, TableMetadata(1, 5, 1, (5,))), 0.0)
    assert snapshot.get_table(1).version == 5
    assert snapshot.get_partition_version(0, 1) == 2


# Reading.


def test_a_read_returns_the_state_at_the_end_of_its_round_trip() -> None:
    catalog = catalog_of(latency_ms=5.0)
    reading = session(catalog).read(timestamp_ms=100.0)
    next(reading)
    drain(catalog.commit(0, {0: 1}))
    snapshot = drain(reading)
    assert (snapshot.seq, snapshot.timestamp_ms) == (1, 105.0)


def test_a_new_catalog_has_every_table_and_partition_at_version_0() -> None:
    snapshot = state_of(InstantCatalog(2, (1, 3)))
    assert snapshot.tables == (TableMetadata(0, 0, 1, (0,)), TableMetadata(1, 0, 3, (0, 0, 0)))


# Committing by compare-and-swap.


def test_a_cas_catalog_commits_in_a_single_round_trip() -> None:
    storage = fixed_provider(cas=61.0)
    catalog = CASCatalog(storage, 1, (1,))
    yielded, result = waits(catalog.commit(0, {0: 1}))
    assert (storage.log, sum(yielded), result.latency_ms) == (["cas catalog"], 61.0, 61.0)
    assert result.success


def test_a_failed_cas_changes_nothing() -> None:
    catalog = catalog_of(tables=2, partitions=2)
    drain(catalog.commit(0, {0: 1}))
    before = state_of(catalog)
    assert not drain(catalog.commit(0, {1: 1})).success
    assert state_of(catalog).tables == before.tables
    assert catalog.seq == 1


def test_a_commit_advances_all_its_tables_at_once_and_only_the_partitions_written() -> None:
    catalog = catalog_of(tables=3, partitions=3)
    partitions = {0: frozenset({2}), 2: frozenset({0, 1})}
    drain(catalog.commit(0, {0: 1, 2: 1}, 0.0, IntentionRecord(1, 0, {0: 1, 2: 1}, partitions)))
    tables = state_of(catalog).tables
    assert [table.version for table in tables] == [1, 0, 1]
    assert [table.partition_versions for table in tables] == [(0, 0, 1), (0, 0, 0), (1, 1, 0)]


def test_a_commit_without_partitions_changes_all_of_them() -> None:
    catalog = catalog_of(partitions=3)
    drain(catalog.commit(0, {0: 1}))
    assert state_of(catalog).get_table(0).partition_versions == (1, 1, 1)


def test_a_version_may_not_be_skipped() -> None:
    with pytest.raises(InvariantError, match="version monotonicity"):
        drain(catalog_of().commit(0, {0: 2}))


def test_an_instant_catalog_takes_the_fixed_latency_for_everything() -> None:
    catalog = catalog_of(latency_ms=2.5)
    assert waits(catalog.read())[0] == [2.5]
    assert waits(catalog.commit(0, {0: 1}))[0] == [2.5]
    assert waits(catalog.commit(0, {0: 1}))[0] == [2.5]


# Committing by append.


def test_an_append_catalog_commits_in_two_round_trips() -> None:
    storage = fixed_provider(append=21.0, read=10.0)
    catalog = append_catalog_of(storage=storage)
    yielded, result = waits(catalog.commit(0, {0: 1}))
    assert storage.log == ["append catalog", "read catalog"]
    assert (yielded, result.latency_ms, result.success) == ([21.0, 10.0], 31.0, True)


def test_in_an_append_catalog_commits_to_other_tables_do_not_conflict() -> None:
    catalog = append_catalog_of(tables=2)
    assert drain(session(catalog).commit(0, {0: 1})).success
    assert drain(session(catalog).commit(0, {1: 1})).success
    assert not drain(session(catalog).commit(0, {0: 1})).success
    assert catalog.seq == 2


def test_an_append_catalog_decides_when_the_append_lands_not_when_it_is_discovered() -> None:
    catalog = append_catalog_of()
    committing = session(catalog).commit(0, {0: 1})
    next(committing)  # the append travels
    assert catalog.seq == 0
    next(committing)  # it has landed; the discovery read travels
    assert catalog.seq == 1


# Sessions.


def test_sessions_share_the_state_and_have_latencies_of_their_own() -> None:
    rows = {"read": ExponentialLatency(10.0), "cas": FixedLatency(1.0), "append": FixedLatency(1.0)}
    storage = ProfiledProvider(Profile("p", rows), Stream(0))
    for catalog in (CASCatalog(storage, 1, (1,)), AppendCatalog(storage, 1, (1,))):
        one, two, again = (catalog.session(Stream(key)) for key in (1, 2, 1))
        assert waits(one.read())[0] == waits(again.read())[0] != waits(two.read())[0]
        assert drain(one.commit(0, {0: 1})).success
        assert (two.seq, catalog.seq) == (1, 1)


def test_counters_separate_successes_from_failures_and_count_reads() -> None:
    catalog = catalog_of()
    drain(catalog.read())
    drain(catalog.commit(0, {0: 1}))
    drain(catalog.commit(0, {0: 1}))
    assert dict(catalog.counters) == {"catalog_reads": 1, "cas_success": 1, "cas_failure": 1}
