"""Growth: metadata by retained snapshots, manifest lists by manifests, and the maintenance that keeps both small."""

from typing import Any

import pytest

from endive.sim.catalog import IntentionRecord
from endive.sim.catalog.state import CatalogState
from endive.sim.commit_options import CommitOptions
from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import simulate
from endive.sim.results.statistics import RunResult
from endive.sim.transaction_types import TRANSACTION_TYPES, IcebergTransaction
from tests.instruments import fixed_provider
from tests.support import catalog_of, commit, fast_append, losing, run, state_of

OPTIONS = CommitOptions(
    metadata_inlined=False,
    table_metadata_bytes=1_000,
    snapshot_bytes=100,
    table_snapshots=5,
    snapshots_kept=2,
    manifest_list_bytes=500,
    manifest_list_growth_bytes=7,
)


def maintenance(operation: Any) -> IcebergTransaction:
    found = TRANSACTION_TYPES[operation](7, 0.0, 100.0, frozenset({0}))
    assert isinstance(found, IcebergTransaction)
    return found


def sizes(storage: Any, request: str) -> list[int]:
    return [size for name, size in zip(storage.log, storage.sizes, strict=True) if name == request]


def test_metadata_grows_by_each_snapshot_and_an_expiry_shrinks_it() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    for _ in range(3):
        run(fast_append(), catalog, storage, options=OPTIONS)
    run(maintenance("expire_snapshots"), catalog, storage, options=OPTIONS)
    run(fast_append(), catalog, storage, options=OPTIONS)
    first = 1_000 + 5 * 100
    assert sizes(storage, "write table_metadata") == [first, first + 100, first + 200, first + 300, 1_000 + 2 * 100]


def test_an_expiry_adds_no_snapshot_and_no_manifest_and_touches_no_manifest_list() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    commit(fast_append(), catalog)
    before = state_of(catalog).get_table(0)
    run(maintenance("expire_snapshots"), catalog, storage, options=OPTIONS)
    after = state_of(catalog).get_table(0)
    assert storage.log == ["read table_metadata", "write table_metadata"]
    assert (after.manifests, after.snapshots) == (before.manifests, before.snapshots)
    assert (after.version, after.retained) == (before.version + 1, 2 - 5)


def test_an_expiry_leaves_a_table_with_few_snapshots_alone() -> None:
    catalog = catalog_of()
    run(maintenance("expire_snapshots"), catalog, options=CommitOptions(snapshot_bytes=1, snapshots_kept=100))
    assert state_of(catalog).get_table(0).retained == 0


def test_a_manifest_list_grows_by_each_manifest_and_rewriting_manifests_shrinks_it() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    for _ in range(4):
        run(fast_append(), catalog, storage, options=OPTIONS)
    storage.log.clear()
    storage.sizes.clear()
    run(maintenance("rewrite_manifests"), catalog, storage, options=OPTIONS)
    assert storage.log.count("read manifest_file") == 1 + 4
    assert storage.log.count("write manifest_file") == 1
    assert state_of(catalog).get_table(0).manifests == 1
    assert sizes(storage, "write manifest_list") == [500 + 4 * 7]
    run(fast_append(), catalog, storage, options=OPTIONS)
    assert sizes(storage, "read manifest_list")[-1] == 500


def test_a_rewrite_of_manifests_that_loses_a_race_keeps_what_it_has_merged() -> None:
    storage, base = fixed_provider(), catalog_of()
    for _ in range(3):
        commit(fast_append(), base)
    catalog = losing(base, 2, fast_append)
    result = run(maintenance("rewrite_manifests"), catalog, storage, options=OPTIONS)
    assert result.total_retries == 2
    assert storage.log.count("read manifest_file") == 1 + 3
    assert state_of(catalog).get_table(0).manifests == 1 + 2  # its own, and those of the two winners


def test_a_table_has_at_least_the_manifest_of_its_last_commit() -> None:
    """Two transactions may merge the same manifests, if they do not overlap otherwise."""
    state = CatalogState(1, (2,), "partition", manifests=5)
    for number in (0, 1):
        state.apply(IntentionRecord(number, 0, {0: 1}, {0: frozenset({number})}, manifests_merged={0: 5}))
    assert state.tables[0].manifests == 1


UPKEEP = """
simulation = { duration_ms = 3_600_000, trim_start_ms = 0, trim_end_ms = 0 }
storage.provider = "s3"
catalog.type = "instant"
[transaction]
cost_model = "iceberg"
runtime.value = 100
snapshot_bytes = 1_000
manifest_list_growth_bytes = 200
snapshots_kept = 10
[workload.stream]
arrivals = "triggered"
interval_ms = 2_000
writers = 1
operation_types.fast_append = 1
"""
EVERY = """
[workload.upkeep]
arrivals = "triggered"
interval_ms = 300_000
writers = 1
operation_types.expire_snapshots = 1
"""


def late_latency_ms(result: RunResult) -> float:
    """Return the mean commit latency of the last hundred commits of the stream."""
    rows = [row for row in result.table.to_pylist() if row["class"] == "stream" and row["status"] == "committed"]
    return float(sum(row["commit_latency"] for row in rows[-100:]) / 100)


def test_latency_grows_with_the_age_of_a_table_unless_it_is_kept_up() -> None:
    early = simulate(parse_configuration(UPKEEP.replace("3_600_000", "360_000")), 1)
    aged, kept = (simulate(parse_configuration(text), 1) for text in (UPKEEP, UPKEEP + EVERY))
    assert late_latency_ms(aged) > late_latency_ms(early) + 40  # 1,700 snapshots are 1.7 MB, read and written
    assert late_latency_ms(kept) < late_latency_ms(aged) - 30


@pytest.mark.parametrize("operation", ["expire_snapshots", "rewrite_manifests"])
def test_maintenance_does_not_conflict_with_an_overwrite(operation: str) -> None:
    text = f"""
    simulation = {{ duration_ms = 60_000, trim_start_ms = 0, trim_end_ms = 0 }}
    storage.provider = "s3x"
    [transaction]
    runtime.value = 500
    conflict_detector = "partition_overlap"
    [workload.upkeep]
    inter_arrival.scale = 200
    operation_types.{operation} = 1
    [workload.overwrites]
    arrivals = "triggered"
    interval_ms = 10_000
    writers = 1
    operation_types.overwrite = 1
    """
    rows = simulate(parse_configuration(text), 1).table.to_pylist()
    overwrites = [row for row in rows if row["class"] == "overwrites"]
    assert overwrites
    assert all(row["abort_reason"] != "validation_exception" for row in overwrites)


@pytest.mark.parametrize("catalog", ['{ preset = "rest" }', "{ table_metadata_inlined = true }"])
def test_a_size_that_grows_has_no_effect_on_metadata_that_a_server_writes_or_that_is_inlined(catalog: str) -> None:
    text = f"""
        storage = {{ provider = "s3", profiles = "measured" }}
        catalog = {catalog}
        transaction = {{ inter_arrival.scale = 1000, snapshot_bytes = 1000 }}
        """
    assert "transaction.snapshot_bytes has no effect" in "\n".join(parse_configuration(text).warnings)
