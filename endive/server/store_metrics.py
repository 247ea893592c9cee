"""Metrics of the stores behind a server: time of commits by stage, size of batches, requests, losses."""

from collections.abc import Iterator, Mapping

from endive.catalog.catalog import KVCatalog
from endive.kv.commit_times import Histogram
from endive.kv.store import Store
from endive.server.metrics import escaped_label

COUNTERS = {
    "batches": ("endive_commit_batches_total", "Commit batches: each is one write to the object store."),
    "transactions": ("endive_transactions_total", "Transactions in commit batches."),
    "lost_races": ("endive_store_lost_races_total", "WAL entries that another writer took first."),
    "announced_batches": ("endive_announced_batches_total", "Batches announced for any process to carry out."),
    "carried_by_others": ("endive_carried_by_others_total", "Announced batches that another process carried out."),
    "carried_for_others": ("endive_carried_for_others_total", "Batches of other processes that this one carried out."),
}
GAUGES = {
    "epoch": ("endive_store_epoch", "The writer's epoch; it grows when another process takes over."),
    "uncompacted_bytes": ("endive_store_uncompacted_bytes", "Bytes that are durable, but not in the levels yet."),
    "level_bytes": ("endive_store_level_bytes", "Bytes in the levels."),
}


def store_lines(warehouses: Mapping[str, KVCatalog]) -> Iterator[str]:
    """Return the metrics of the warehouses' stores in Prometheus' text format."""
    stores = {escaped_label(name): one.store for name, one in warehouses.items() if isinstance(one.store, Store)}
    stats = {name: store.stats() for name, store in stores.items()}
    for key, (metric, words) in COUNTERS.items():
        yield from _head(metric, words, "counter")
        yield from (f'{metric}{{warehouse="{name}"}} {found[key]}' for name, found in stats.items() if key in found)
    for key, (metric, words) in GAUGES.items():
        yield from _head(metric, words, "gauge")
        yield from (f'{metric}{{warehouse="{name}"}} {found[key]}' for name, found in stats.items() if key in found)
    yield from _head("endive_store_requests_total", "Requests to the object store, by kind.", "counter")
    for name, found in stats.items():
        for key, count in found.items():
            if key.startswith("requests_"):
                kind = key.removeprefix("requests_")
                yield f'endive_store_requests_total{{warehouse="{name}",kind="{kind}"}} {count}'
    yield from _head(
        "endive_commit_stage_seconds",
        "Time of commits: waiting for a batch, PUT of its WAL entry, all other work.",
        "histogram",
    )
    stages = {name: store.commit_times.stages() for name, store in stores.items()}
    for name, found_stages in stages.items():
        for stage in ("waiting", "work", "put"):
            yield from _histogram(
                "endive_commit_stage_seconds", f'warehouse="{name}",stage="{stage}"', found_stages[stage]
            )
    yield from _head("endive_commit_batch_size", "Transactions of a commit batch.", "histogram")
    for name, found_stages in stages.items():
        yield from _histogram("endive_commit_batch_size", f'warehouse="{name}"', found_stages["size"])


def _head(metric: str, words: str, kind: str) -> Iterator[str]:
    yield f"# HELP {metric} {words}"
    yield f"# TYPE {metric} {kind}"


def _histogram(metric: str, labels: str, found: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*map(str, found.bounds), "+Inf"), found.counts, strict=True):
        below += count
        yield f'{metric}_bucket{{{labels},le="{bound}"}} {below}'
    yield f"{metric}_sum{{{labels}}} {found.total:.6f}"
    yield f"{metric}_count{{{labels}}} {below}"
