"""Options of the source documents that once had no effect, and the limits of repeated appends."""

from typing import Any

import pytest

from endive.sim.catalog import AppendCatalog, IntentionRecord
from endive.sim.commit_options import CommitOptions, ManifestListAppend
from endive.sim.config.configuration import PROVIDER_PROFILES, settings_of
from endive.sim.config.profiles import load_profile_set
from endive.sim.engines import simulate as run_settings
from endive.sim.latency import FixedLatency, NormalLatency
from endive.sim.results.summary import summarise
from endive.sim.transaction import TransactionStatus
from tests.instruments import drain, fixed_provider, session, waits
from tests.support import (
    append_catalog_of,
    catalog_of,
    commit,
    fast_append,
    losing,
    paused_before_commit,
    resume,
    run,
    workload_of,
)

# Refused appends to the log.


def stale_client(catalog: AppendCatalog) -> Any:
    """Return a client whose offset a rival has moved."""
    client, rival = session(catalog), session(catalog)
    drain(client.read())
    drain(rival.read())
    assert drain(rival.commit(0, {1: 1})).success
    return client


@pytest.mark.parametrize(("attempts", "landed", "took"), [(1, False, 7.0), (2, True, 7.0 + 7.0 + 5.0)])
def test_a_refused_append_is_sent_again_as_often_as_configured(attempts: int, landed: bool, took: float) -> None:
    catalog = append_catalog_of(tables=2, storage=fixed_provider(append=7.0, read=5.0))
    client = stale_client(catalog)
    intention = IntentionRecord(1, 0, {0: 1}, appends_max=attempts)
    yielded, result = waits(client.commit(0, {0: 1}, 0.0, intention))
    assert (result.success, sum(yielded)) == (landed, took)
    assert catalog.counters["append_gave_up"] == (0 if landed else 1)
    assert catalog.counters["append_physical_failure"] == 1


def test_a_refused_append_is_not_sent_again_after_the_deadline() -> None:
    catalog = append_catalog_of(tables=2, storage=fixed_provider(append=7.0, read=5.0))
    client = stale_client(catalog)
    intention = IntentionRecord(1, 0, {0: 1}, appends_max=1_000, deadline_ms=106.0)
    yielded, result = waits(client.commit(0, {0: 1}, 100.0, intention))
    assert (result.success, yielded) == (False, [7.0])


SATURATED = """
    simulation = { duration_ms = 60_000, trim_start_ms = 0, trim_end_ms = 0 }
    storage.provider = "s3x"
    catalog = { type = "append", num_tables = 2 }
    [transaction]
    inter_arrival.scale = 25
    runtime.value = 100
    operation_types.fast_append = 1
    """


def test_a_commit_that_repeats_appends_ends_with_the_retry_timeout() -> None:
    limits = {"transaction.append_attempts": 10_000, "transaction.retry_timeout_ms": 2_000.0}
    rows = run_settings(settings_of(SATURATED, limits), 1).table.to_pylist()
    aborted = [row for row in rows if row["status"] == "aborted"]
    assert {row["abort_reason"] for row in aborted} == {"retry_timeout"}
    assert max(row["commit_latency"] for row in aborted) < 2_000 + 500  # the attempt under way may end


def test_by_default_appends_do_not_collapse_under_load_that_a_swap_sustains() -> None:
    """Two tables, ten appends a second, S3 Express: with a thousand repetitions two in three transactions failed."""
    light = {"transaction.inter_arrival.scale": 100.0}
    settings = settings_of(SATURATED, light)
    assert settings.values.transaction.append_attempts == 2
    summary = summarise(run_settings(settings, 1).table, settings.window)
    assert (summary.success or 0.0) > 0.98
    assert (summary.latency["all"].p50_ms or 0.0) < 500


# ML+.


def test_a_saturated_manifest_list_fails_attempts_and_no_invariant() -> None:
    overrides = {
        "catalog.type": "cas",
        "catalog.num_tables": 1,
        "transaction.manifest_list_mode": "append",
        "transaction.inter_arrival.scale": 5.0,
        "simulation.duration_ms": 20_000,
    }
    result = run_settings(settings_of(SATURATED, overrides), 1)
    assert "aborted" in result.table["status"].to_pylist()
    assert result.counters["manifest_append_physical_failure"] > 1_000


def test_entries_of_a_manifest_list_lengthen_its_reads() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    options = CommitOptions(manifest_list_bytes=1_000, manifest_list_append=ManifestListAppend(entry_bytes=70))
    for _ in range(3):
        run(fast_append(), catalog, storage, ml_append_mode=True, options=options)
    reads = [size for request, size in zip(storage.log, storage.sizes, strict=True) if request == "read manifest_list"]
    assert reads == [1_000, 1_070, 1_140]


def test_entries_lengthen_reads_of_a_profile_whose_reads_do_not_depend_on_size() -> None:
    overrides = {"transaction.manifest_list_mode": "append", "catalog.num_tables": 1, "catalog.type": "cas"}
    read = settings_of(SATURATED, overrides).profile.find("read", "manifest_list")
    assert read is not None
    assert read.with_size(2**20).quantile.ticks_at(0.5) > read.with_size(0).quantile.ticks_at(0.5)


@pytest.mark.parametrize(("per_partition", "size"), [(False, 1_000 + 3 * 7), (True, 1_000 + 1 * 7)])
def test_a_list_for_each_partition_grows_with_its_own_commits(per_partition: bool, size: int) -> None:
    lists = ManifestListAppend(per_partition=per_partition)
    options = CommitOptions(manifest_list_bytes=1_000, manifest_list_growth_bytes=7, manifest_list_append=lists)
    catalog = catalog_of(partitions=2)
    for partition in (0, 1, 1):
        commit(fast_append(partition=partition), catalog)
    storage = fixed_provider()
    run(fast_append(partition=0), catalog, storage, options=options)
    assert dict(zip(storage.log, storage.sizes, strict=True))["read manifest_list"] == size


def test_a_list_that_grows_by_a_byte_is_not_read_sooner() -> None:
    p50 = []
    for growth in (0, 1):
        overrides = {"catalog.type": "cas", "transaction.manifest_list_growth_bytes": growth}
        settings = settings_of(SATURATED, overrides)
        p50.append(summarise(run_settings(settings, 1).table, settings.window).latency["all"].p50_ms)
    assert p50[1] == pytest.approx(p50[0], rel=0.02)


# Keys of the older documents.


def test_a_tail_append_lands_wherever_the_log_ends() -> None:
    storage = fixed_provider(append=7.0, tail_append=6.0, read=5.0)
    catalog = AppendCatalog(storage, 2, (1, 1), append="tail_append")
    client = stale_client(catalog)
    yielded, result = waits(client.commit(0, {0: 1}))
    assert (result.success, sum(yielded)) == (True, 6.0 + 5.0)
    assert catalog.counters["append_physical_failure"] == 0


def test_a_tail_append_to_a_sealed_log_compacts_it_first() -> None:
    storage = fixed_provider()
    catalog = AppendCatalog(storage, 1, (1,), append="tail_append")
    storage.objects.sealed.add("catalog")
    assert drain(session(catalog).commit(0, {0: 1})).success
    assert catalog.counters["append_compactions_completed"] == 1


def test_resolving_a_conflict_reads_the_metadata_root_of_each_written_table() -> None:
    storage = fixed_provider()
    catalog = losing(catalog_of(tables=2), 2, lambda: fast_append(0))
    options = CommitOptions(reads_metadata_root=True)
    result = run(fast_append(tables=frozenset({0, 1})), catalog, storage, options=options)
    assert result.status is TransactionStatus.COMMITTED
    assert storage.log.count("read metadata_root") == 2 * 2


def test_without_overlap_no_metadata_root_is_read() -> None:
    catalog, storage = catalog_of(tables=2), fixed_provider()
    slow = paused_before_commit(fast_append(0), catalog, storage, options=CommitOptions(reads_metadata_root=True))
    commit(fast_append(1), catalog)
    assert resume(slow).total_retries == 1
    assert "read metadata_root" not in storage.log


def test_a_fixed_runtime_is_added_to_each_draw() -> None:
    workload = workload_of(runtime=FixedLatency(40.0), runtime_fixed_ms=30_000.0)
    assert workload.transaction(0, 0.0).runtime_ms == 30_040.0


def test_compacting_the_log_takes_200_ms_by_default() -> None:
    for name, profile in {**PROVIDER_PROFILES, **load_profile_set("measured")}.items():
        row = profile.find("cas", "compaction")
        if name == "instant":
            assert row == profile.find("cas", "catalog")
        else:
            assert isinstance(row, NormalLatency), name
            assert (row.mean_ms, row.stddev_ms) == (200.0, 20.0)
            assert profile.sources["compaction_cas"]
