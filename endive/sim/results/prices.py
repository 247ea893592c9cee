"""Prices of the requests of a run: dollars per million commits, from request prices as data.

Counted are the requests of the whole run, those of failed transactions included. Data files, bytes and storage are not.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from endive.sim.config.configuration import Settings

NAME = "dollars_per_million_commits"
READS = (
    "metadata_root_reads", "metadata_reads", "manifest_list_reads", "historical_ml_reads", "manifest_file_reads",
    "heads",
)  # fmt: skip
WRITES = (
    "metadata_writes", "manifest_list_writes", "manifest_file_writes", "manifest_append_physical_success",
    "manifest_append_physical_failure",
)  # fmt: skip
CATALOG_READS = ("catalog_reads", "discovery_reads")
CATALOG_WRITES = ("cas_success", "cas_failure", "append_physical_success", "append_physical_failure")

ANNOUNCED_READS = 8
"""Reads of a commit that another process carries out: of its announcement, and looks for its result. Measured are 10.5
requests a commit of 64 processes (benchmarks/results/helping_virtual.json); one of them writes and one deletes."""


@cache
def load_prices() -> Mapping[str, Any]:
    """Return the prices by provider, and below `catalog` by preset."""
    return tomllib.loads(files("endive.sim").joinpath("providers/prices.toml").read_text(encoding="utf-8"))


def dollars_per_million_commits(settings: Settings, counters: Mapping[str, int]) -> float | None:
    """Return the price of a million commits. None: a price is not known, or nothing was committed.

    A catalog on the store pays the store's prices. A service pays those of its preset, or nothing if it runs on
    machines of its own. Group commit pays the store's prices for its batches. A service whose own work is a write to
    the store, without batches, has no price.
    """
    catalog, store = settings.values.catalog, load_prices().get(settings.values.storage.provider)
    commits = counters.get("cas_success", 0) + counters.get("append_logical_success", 0)
    if store is None or settings.profile_set == "own" or catalog.type == "instant" or not commits:
        return None
    if catalog.type == "service" and catalog.service.batches:
        total = _cost(store, counters, READS, WRITES) + _log_cost(store, counters, bool(catalog.service.helping))
        return float(total / commits)
    if catalog.type == "service" and not catalog.service.work:
        return None
    free = {"read": 0.0, "write": 0.0}
    of_catalog = load_prices()["catalog"].get(catalog.preset, free) if catalog.type == "service" else store
    total = _cost(store, counters, READS, WRITES) + _cost(of_catalog, counters, CATALOG_READS, CATALOG_WRITES)
    if catalog.type == "service" and catalog.service.writes_metadata:
        served = counters.get("cas_success", 0) + counters.get("cas_failure", 0)
        total += served * (store["read"] + store["write"])
    return float(total / commits)


def _cost(
    prices: Mapping[str, float], counters: Mapping[str, int], reads: tuple[str, ...], writes: tuple[str, ...]
) -> float:
    read, written = (sum(counters.get(name, 0) for name in names) for names in (reads, writes))
    return read * prices["read"] + written * prices["write"]


def _log_cost(store: Mapping[str, float], counters: Mapping[str, int], helping: bool) -> float:
    """Return the cost of batches: of one process, whose state is in memory; or of processes that help each other."""
    batches, announced = counters.get("batches", 0), counters.get("announced_commits", 0)
    if not helping:
        return batches * store["write"]
    reads = announced * ANNOUNCED_READS + sum(counters.get(name, 0) for name in CATALOG_READS)
    return (2 * batches + announced) * store["write"] + reads * store["read"]  # a listing costs as much as a write


def requests_per_commit(counters: Mapping[str, int]) -> float | None:
    """Return the requests of a run, to the store and the catalog, for each commit. None: nothing was committed.

    Commits that share a batch share its request.
    """
    commits = counters.get("cas_success", 0) + counters.get("append_logical_success", 0)
    of_catalog = ("batches", "announced_commits") if counters.get("batches") else CATALOG_WRITES
    requests = sum(counters.get(name, 0) for name in (*READS, *WRITES, *CATALOG_READS, *of_catalog))
    return requests / commits if commits else None
