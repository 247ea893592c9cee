"""The named cost models: the requests of each attempt, compared with those of a real PyIceberg.

The truth for `pyiceberg` is the library itself, traced by `tests/pyiceberg_trace.py` while it loses real races.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from endive.sim.commit_options import CommitOptions
from endive.sim.config.configuration import parse_configuration
from endive.sim.cost import COST_MODELS, ICEBERG, NOTHING, PYICEBERG, REQUEST_KINDS, SPEC, ConflictCost, CostModel
from endive.sim.transaction import Transaction
from endive.sim.transaction_types import TRANSACTION_TYPES
from tests.instruments import WatchedCatalog, drain, fixed_provider
from tests.support import NEVER, catalog_of, commit, fast_append, merge_append, overwrite, run

BUILDERS: dict[str, Callable[..., Transaction]] = {
    "fast_append": fast_append,
    "merge_append": merge_append,
    "validated_overwrite": overwrite,
}
NAMES = {
    "read manifest_list": "manifest_list_read",
    "write manifest_list": "manifest_list_write",
    "read manifest_file": "manifest_file_read",
    "write manifest_file": "manifest_file_write",
    "read table_metadata": "metadata_read",
    "write table_metadata": "metadata_write",
    "read head": "head",
}
READ = ["catalog_read", "metadata_read"]


def simulated(
    model: CostModel, operation: str, lost_races: int, *, rival_table: int = 0, inlined: bool = False
) -> list[str]:
    """Return the requests of a transaction that loses so many races, each to one commit just before its swap."""
    storage, catalog = fixed_provider(), catalog_of(tables=2)
    rivals = [lambda: commit(fast_append(rival_table), catalog)] * lost_races
    watched = WatchedCatalog(catalog, rivals, log=storage.log)
    options = CommitOptions(cost_model=model, metadata_inlined=inlined, table_manifests=3)
    run(BUILDERS[operation](), watched, storage, options=options)
    return [NAMES.get(request, request) for request in storage.log]


def by_attempt(requests: Sequence[str]) -> list[Counter[str]]:
    counts = [Counter[str]()]
    for request in requests:
        counts[-1][request] += 1
        if request == "cas":
            counts.append(Counter())
    return [counted for counted in counts if counted]


def by_race(requests: Sequence[str]) -> list[Counter[str]]:
    """Count the requests between the points at which a race is decided: each catalog read, and each swap."""
    counts = [Counter[str]()]
    for request in requests:
        if request == "catalog_read":
            counts.append(Counter())
        counts[-1][request] += 1
        if request == "cas":
            counts.append(Counter())
    return [counted for counted in counts if counted]


def count(**requests: int) -> Counter[str]:
    return Counter(requests)


# Costs as values.


def test_costs_add_up_and_multiply_with_truncation() -> None:
    cost = ConflictCost(metadata_reads=1, heads=2) + ConflictCost(heads=1, manifest_file_reads=3)
    assert cost == ConflictCost(metadata_reads=1, heads=3, manifest_file_reads=3)
    assert cost.times(1.5) == ConflictCost(metadata_reads=1, heads=4, manifest_file_reads=4)
    assert cost.without({"heads"}) == ConflictCost(metadata_reads=1, manifest_file_reads=3)
    assert NOTHING.due == ()


def test_a_cost_is_paid_in_the_order_of_its_fields() -> None:
    specified = "metadata_reads manifest_list_reads manifest_list_writes historical_ml_reads manifest_file_reads"
    assert REQUEST_KINDS[:6] == (*specified.split(), "manifest_file_writes")
    everything = ConflictCost(**dict.fromkeys(REQUEST_KINDS, 2))
    assert [kind for kind, _ in everything.due] == list(REQUEST_KINDS)


def test_models_are_found_by_name_and_know_every_operation() -> None:
    assert set(COST_MODELS) == {"spec", "iceberg", "pyiceberg"}
    for name, model in COST_MODELS.items():
        assert model.name == name
        assert set(model.operations) == set(TRANSACTION_TYPES)


# spec.


def test_spec_each_overlapping_attempt_reads_the_list_writes_a_file_and_writes_the_list() -> None:
    attempt = count(manifest_list_read=1, manifest_file_write=1, manifest_list_write=1, cas=1, catalog_read=1)
    assert by_attempt(simulated(SPEC, "fast_append", 2, inlined=True)) == [attempt] * 3


def test_spec_a_validated_overwrite_reads_one_list_more_for_each_snapshot_missed() -> None:
    _, *retries = by_attempt(simulated(SPEC, "validated_overwrite", 2, inlined=True))
    assert [retry["manifest_list_read"] for retry in retries] == [2, 2]


def test_spec_a_cross_table_retry_is_a_catalog_read_and_the_swap() -> None:
    _, retry = by_attempt(simulated(SPEC, "validated_overwrite", 1, rival_table=1, inlined=True))
    assert retry == count(catalog_read=1, cas=1)


# iceberg.


def test_iceberg_refreshes_first_and_writes_its_manifest_file_once() -> None:
    first, *retries = by_attempt(simulated(ICEBERG, "fast_append", 2))
    attempt = count(
        catalog_read=1, metadata_read=1, manifest_list_read=1, manifest_list_write=1, metadata_write=1, cas=1
    )
    assert first == attempt + count(catalog_read=1, metadata_read=1, manifest_file_write=1)  # the load, the file
    assert retries == [attempt] * 2


def test_iceberg_asks_in_the_order_refresh_list_metadata_swap() -> None:
    requests = simulated(ICEBERG, "fast_append", 1)
    retry = requests[requests.index("cas") + 1 :]
    assert retry == [*READ, "manifest_list_read", "manifest_list_write", "metadata_write", "cas"]


def test_iceberg_a_transaction_over_two_tables_pays_for_each() -> None:
    storage = fixed_provider()
    options = CommitOptions(cost_model=ICEBERG, metadata_inlined=False)
    run(fast_append(tables=frozenset({0, 1})), catalog_of(tables=2), storage, options=options)
    assert storage.log.count("write manifest_list") == 2
    assert storage.log.count("write table_metadata") == 2


def test_iceberg_counts_the_tables_snapshots_and_spec_the_catalogs() -> None:
    for model, missed in ((ICEBERG, 1), (SPEC, 3)):
        catalog, txn = catalog_of(tables=2), overwrite(0)
        rivals = [lambda catalog=catalog: [commit(fast_append(table), catalog) for table in (0, 1, 1)]]
        run(txn, WatchedCatalog(catalog, rivals), options=CommitOptions(cost_model=model))
        assert txn.requests["historical_ml_reads"] == missed


# pyiceberg.


@pytest.mark.parametrize(("rival_table", "stale", "retries"), [(0, 1, 1), (1, 0, 0)])
def test_pyiceberg_refreshes_before_its_swap(rival_table: int, stale: int, retries: int) -> None:
    """An attempt on an old snapshot ends there; otherwise it swaps on the snapshot just read."""
    catalog, storage, txn = catalog_of(tables=2), fixed_provider(), fast_append(0)
    steps = txn.execute(WatchedCatalog(catalog, log=storage.log), storage, NEVER, options=CommitOptions(PYICEBERG))
    next(steps)
    next(steps)
    commit(fast_append(rival_table), catalog)  # while the transaction runs
    result = drain(steps)
    assert (txn.events["stale_before_swap"], result.total_retries) == (stale, retries)
    assert storage.log.count("cas") == 1


def test_pyiceberg_validates_everything_since_its_start_each_time() -> None:
    _, *retries = by_attempt(simulated(PYICEBERG, "validated_overwrite", 3))
    assert [retry["manifest_list_read"] - 2 for retry in retries] == [1, 2, 3]


def test_pyiceberg_writes_its_manifest_while_it_reads_the_list() -> None:
    storage = fixed_provider(1.0, manifest_list_read=50.0, manifest_file_write=20.0, head_read=10.0)
    result = run(fast_append(), catalog_of(), storage, options=CommitOptions(PYICEBERG))
    assert result.per_attempt_io_ms == 50.0 + 1.0 + 10.0  # the longer branch, the list's write, the metadata's head


@pytest.mark.slow
@pytest.mark.parametrize("lost_races", [0, 1, 2])
@pytest.mark.parametrize("operation", BUILDERS)
def test_pyiceberg_makes_the_requests_that_the_real_library_makes(operation: str, lost_races: int) -> None:
    from tests.pyiceberg_trace import trace

    heads = {"manifest_file_head": "head", "metadata_head": "head"}
    ignored = {"data_write", "data_head", "delete"}
    real = [heads.get(request, request) for request in trace(operation, lost_races) if request not in ignored]
    model = simulated(PYICEBERG, operation, lost_races)
    assert model[:2] == READ  # loading the table, which the trace leaves out
    assert by_attempt(model[2:]) == by_attempt(real)
    assert by_race(model[2:]) == by_race(real)


@pytest.mark.parametrize(("model", "waits_first"), [("spec", False), ("iceberg", True), ("pyiceberg", True)])
def test_the_libraries_wait_before_they_refresh_and_so_retry_on_the_latest_snapshot(
    model: str, waits_first: bool
) -> None:
    text = f"""
        storage.provider = "s3"
        [transaction]
        cost_model = "{model}"
        inter_arrival.scale = 1_000
        retry_backoff.enabled = true
        """
    settings = parse_configuration(text)
    assert settings.values.transaction.retry_backoff.before_read is waits_first
    assert settings.build().backoff_before_read is waits_first


def test_options_changed_by_replace_have_prices_of_their_own() -> None:
    options = CommitOptions()
    assert options.prices("fast_append", False, 1).retry.metadata_reads == 0
    changed = replace(options, cost_model=ICEBERG, metadata_inlined=False)
    assert changed.prices("fast_append", False, 1).retry.metadata_reads == 1
