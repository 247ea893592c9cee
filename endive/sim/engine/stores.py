"""Limits of the stores as the kernel takes them: of the catalog's store, and of the tables'."""

from typing import Any

import numpy as np
import numpy.typing as npt

from endive.sim.config.configuration import Settings
from endive.sim.latency import FixedLatency
from endive.sim.station import SERVER_ROWS
from endive.sim.storage import Profile


def catalog_profile(settings: Settings) -> Profile:
    """Return the profile of the store or the server that commits go to."""
    if settings.values.catalog.type != "instant":
        return settings.service or settings.profile
    fixed = FixedLatency(settings.values.catalog.latency_ms)
    return Profile("instant-catalog", {"read": fixed, "cas": fixed})


def store_numbers(catalog: Profile, tables: Profile, append: str) -> dict[str, Any]:
    """Return contention and limits by kind of conditional request: `kernel.CAS` and so on.

    `append` is the request that appends to a log.
    """
    kinds = [(catalog, "cas"), (catalog, append), (catalog, "cas"), (tables, "append")]
    contention = [store.contention_of(operation) for store, operation in kinds]
    limits = [store.object_limit for store, _ in kinds]
    return {
        "client_attempts": [store.client.attempts for store in (catalog, tables)],
        "client_jitter": [store.client.jitter for store in (catalog, tables)],
        "decision": [store.decision_of(operation) for store, operation in kinds],
        "per_writer": [each.per_writer for each in contention],
        "scale_max": [each.scale_max for each in contention],
        "contention_free": [each.free for each in contention],
        "contention_half": [each.half for each in contention],
        "limit_interval": [limit.interval_ticks for limit in limits],
        "limit_spare": [limit.spare_ticks for limit in limits],
        "limit_refusal": [limit.refusal_ticks for limit in limits],
        "limit_throttle": [limit.throttle_ticks for limit in limits],
    }


def prefix_numbers(tables: Profile) -> dict[str, Any]:
    """Return the limit on the requests to one prefix."""
    limit = tables.prefix_limit
    read_ticks, write_ticks = limit.intervals_ticks
    return {
        "limited": read_ticks + write_ticks > 0,
        "read_interval": read_ticks,
        "write_interval": write_ticks,
        "prefix_per_table": limit.per_table,
    }


def client_waits(*stores: Profile) -> npt.NDArray[np.float64]:
    """Return the waits of each store's client in milliseconds, as rows of one length."""
    waits = np.zeros((len(stores), max(store.client.attempts for store in stores)))
    for row, store in zip(waits, stores, strict=True):
        row[: store.client.attempts - 1] = [store.client.capped_ms(retry) for retry in range(1, store.client.attempts)]
    return waits


def station_numbers(catalog: Profile) -> dict[str, Any]:
    """Return the rules of the server that commits go to."""
    station = catalog.station
    return {
        "has_station": station.serves,
        "workers": station.workers,
        "batches": station.batches,
        "prepare": station.prepare_ticks,
        "helping": station.helping,
        "workers_per_table": station.per_table,
        "wait_max": station.wait_max_ticks,
        "polled": len(station.polls),
        "server_retries": station.retries,
        "has_work": [name in catalog.latencies for name in SERVER_ROWS],
    }
