"""Random configurations over the whole option space, for comparing the engines. A number gives the same one always."""

import random
from pathlib import Path
from typing import Any

import tomli_w

from endive.sim.config.catalogs import load_presets

Draw = random.Random


def configuration(number: int) -> str:
    """Return configuration `number` as TOML. Some contradict themselves, and are refused when loaded."""
    draw = Draw(number)
    tables = draw.choice([1, 1, 2, 5, 20])
    catalog, partitions = _catalog(draw, tables)
    document = {
        "simulation": {"duration_ms": draw.choice([5_000, 20_000, 60_000]) + draw.random() * 1_000},
        "storage": _storage(draw) | _prefixes(Draw(f"prefixes {number}")),
        "catalog": catalog,
        "transaction": _transaction(draw, tables, partitions),
    }
    document["transaction"] |= _more(draw, tables, document["transaction"])
    if draw.random() < 0.5:
        names = ("streams", "compaction", "backfill")[: draw.randint(1, 3)]
        document["workload"] = {name: _class(draw, tables, partitions) for name in names}
    return tomli_w.dumps(document)


ALL_TYPES = (
    "fast_append", "merge_append", "validated_overwrite", "append", "overwrite", "row_delta", "replace_partitions",
    "rewrite", "expire_snapshots", "rewrite_manifests",
)  # fmt: skip

OF_TABLES = (
    "manifest_list_mode", "manifest_list_entry_size", "manifest_list_seal_threshold", "manifest_list_entries",
    "manifest_list_scope", "manifest_list_growth_bytes", "table_manifests", "snapshot_bytes", "table_snapshots",
    "snapshots_kept",
)  # fmt: skip


def _class(draw: Draw, tables: int, partitions: int) -> dict[str, Any]:
    """Return a class of transactions that differs from the shared section in some keys."""
    own = _transaction(draw, tables, partitions)
    own |= _more(draw, tables, own)
    kept = ("arrivals", "inter_arrival", "writers", "interval_ms", "operation_types", "partial_progress_commits")
    return {key: value for key, value in own.items() if key not in OF_TABLES and (key in kept or draw.random() < 0.5)}


def _more(draw: Draw, tables: int, transaction: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a class, and arrivals that vary or are triggered."""
    selection = dict(transaction["tables"])
    more: dict[str, Any] = {"tables": selection}
    if draw.random() < 0.5:
        more["operation_types"] = {kind: draw.choice([0.0, 0.3, 1.0]) for kind in ALL_TYPES}
        more["operation_types"][draw.choice(ALL_TYPES)] = 1.0
    if draw.random() < 0.5:
        more["manifest_min_count_to_merge"] = draw.choice([0, 3, 10, 100])
    if draw.random() < 0.2:
        more |= {"operation_types": {"rewrite": 1.0}, "partial_progress_commits": draw.choice([2, 3, 7])}
    if draw.random() < 0.2:
        more |= {"arrivals": "triggered", "interval_ms": draw.choice([100.0, 1_000.0, 7_000.5])}
        if draw.random() < 0.7:
            more["writers"] = draw.choice([1, 3, 12])
    arrivals = more.get("arrivals", transaction.get("arrivals", "open"))
    if arrivals != "open" and draw.random() < 0.5:
        more["stagger_ms"] = draw.choice([0.0, 333.3, 5_000.0])
    if arrivals == "open" and draw.random() < 0.3:
        more["rate"] = _rate(draw)
    if draw.random() < 0.3:
        selection["only"] = draw.sample(range(tables), draw.randint(1, tables))
    among = len(selection.get("only", range(tables)))
    selection["per_txn"] = min(selection["per_txn"], among)
    if draw.random() < 0.3:
        selection |= {"selector": "shares", "shares": [draw.choice([0.5, 1.0, 3.0, 0.0]) + 0.1 for _ in range(among)]}
    if arrivals != "open":
        selection["choice"] = draw.choice(["transaction", "writer"])
        if selection["choice"] == "writer":
            selection["per_txn"] = 1
    return more


def _rate(draw: Draw) -> dict[str, Any]:
    rate: dict[str, Any] = {}
    if draw.random() < 0.7:
        rate["factors"] = [draw.choice([0.0, 0.3, 1.0, 2.5]) for _ in range(draw.randint(1, 7))] + [1.0]
        rate["period_ms"] = draw.choice([900.0, 3_333.333, 86_400_000.0])
    if draw.random() < 0.6:
        rate |= {"burst_factor": draw.choice([0.0, 4.0]), "burst_every_ms": 2_000.0, "burst_ms": 123.4}
    return rate


def _distribution(draw: Draw, low: float, high: float) -> dict[str, Any]:
    middle = draw.uniform(low, high)
    return draw.choice(
        [
            {"distribution": "fixed", "value": float(round(middle))},
            {"distribution": "exponential", "scale": middle + 0.1},
            {"median": middle + 0.1, "sigma": draw.choice([0.0, 0.3, 1.0]), "min": draw.choice([0.0, low])},
            {"distribution": "uniform", "min": low, "max": high},
            {"distribution": "normal", "mean": middle + 0.1, "stddev": middle / 4},
            {"quantiles": [[0.0, low + 1], [0.5, middle + 2], [1.0, high + 3]]},
        ]
    )


LATENCIES = (
    "read", "write", "cas", "cas_failure", "append", "append_failure", "tail_append", "catalog_read", "catalog_cas",
    "catalog_append", "compaction_cas", "metadata_root_read",
    "table_metadata_read", "manifest_list_read", "manifest_list_write", "manifest_list_append",
    "manifest_file_write", "head_read",
)  # fmt: skip


def _latency(draw: Draw) -> dict[str, Any]:
    if draw.random() < 0.7:
        return _distribution(draw, 0.0, 200.0)
    return {"base": draw.uniform(0, 50), "per_mib": draw.uniform(0, 500), "sigma": 0.3, "min": 1.0}


def _storage(draw: Draw) -> dict[str, Any]:
    storage: dict[str, Any] = {
        "provider": draw.choice(["s3", "s3x", "azure", "azurex", "gcp", "instant"]),
        "profiles": draw.choice(["spec", "measured"]),
        "decision": draw.choice(["half", "end", 0.37]),
        "failure_latency": draw.random() < 0.8,
        "contention": draw.random() < 0.8,
        "latency": {name: _latency(draw) for name in LATENCIES if draw.random() < 0.15},
    }
    if draw.random() < 0.7:
        storage["latency"].setdefault("append", {"median": 20.0, "sigma": 0.3})
        storage["latency"].setdefault("tail_append", {"median": 15.0, "sigma": 0.3})
    if draw.random() < 0.3:
        del storage["decision"]
    if draw.random() < 0.5:
        storage |= {"limits": draw.random() < 0.8, "client": draw.choice(["object-store", "pyarrow-s3", "aws-cpp"])}
    return storage


def _prefixes(draw: Draw) -> dict[str, Any]:
    """Return limits on the requests to a prefix, often so tight that short runs meet them."""
    if draw.random() < 0.6:
        return {}
    limits = {"prefix_limits": True, "prefix": draw.choice(["table", "bucket"])}
    tight = {"provider": "tight", "profile_file": str(Path(__file__).parent / "tight.toml")}
    return limits | tight if draw.random() < 0.7 else limits


def _catalog(draw: Draw, tables: int) -> tuple[dict[str, Any], int]:
    """Return the section, and the fewest partitions that a table has."""
    catalog: dict[str, Any] = {"type": draw.choice(["cas", "append", "instant", "service"]), "num_tables": tables}
    if catalog["type"] == "service":
        catalog["service"] = _service(draw)
        if draw.random() < 0.3:
            del catalog["type"]
            catalog["preset"] = draw.choice(list(load_presets()))
            if load_presets()[catalog["preset"]].service.helping:
                catalog["service"] |= {"writes_metadata": False}
    if catalog.get("type") == "instant":
        catalog["latency_ms"] = draw.choice([0.0, 1.0, 7.5])
    if draw.random() < 0.5:
        catalog["conflict_granularity"] = draw.choice(["catalog", "table", "partition"])
    catalog["table_groups"] = draw.choice([1, 1, draw.randint(1, tables)])
    if draw.random() < 0.5:
        catalog["table_metadata_inlined"] = draw.random() < 0.5
    if catalog.get("type") == "append":
        catalog |= {
            "compaction_threshold": draw.choice([0, 500, 2_000, 16_000_000]),
            "compaction_max_entries": draw.choice([0, 1, 5, 20]),
            "log_append": draw.choice(["offset", "offset", "tail"]),
            "log_entry_size": draw.choice([50, 100]),
            "log_entry_read_ms": draw.choice([0.0, 0.0, 1.5]),
        }
    counts = [draw.randint(2, 9) for _ in range(tables)]
    shape = draw.choice(["none", "none", "even", "uneven"])
    if shape == "even":
        catalog["partitions"] = {"num_partitions": counts[0]}
        return catalog, counts[0]
    if shape == "uneven":
        catalog["partitions"] = {"per_table": counts}
        return catalog, min(counts)
    return catalog, 1


def _service(draw: Draw) -> dict[str, Any]:
    service: dict[str, Any] = {
        name: _distribution(draw, 0.0, 60.0) for name in ("read", "commit", "work") if draw.random() < 0.7
    }
    service |= draw.choice(
        [
            {},
            {"workers": draw.choice([1, 3])},
            {"workers": 1, "per_table": True, "poll_ms": 20.0, "poll_multiplier": 1.5, "poll_max_ms": 300.0},
            {"workers": 2, "per_table": True, "wait_max_ms": 100.0},
            {"batches": draw.choice([1, 3]), "prepare_ms": draw.choice([0.0, 2.5])},
            {"batches": draw.choice([1, 2]), "helping": True},
        ]
    )
    if "poll_ms" in service:
        service["wait_max_ms"] = draw.choice([200.0, 5_000.0])
    if draw.random() < 0.3:
        service |= {"requests_per_s": draw.choice([0.5, 5.0]), "burst": draw.choice([1.0, 4.0]), "client": "aws-cpp"}
    writes_metadata = draw.random() < 0.3 and "helping" not in service
    return service | {"retries": draw.choice([0, 2]), "writes_metadata": writes_metadata}


def _selection(draw: Draw, most: int) -> dict[str, Any]:
    return {
        "per_txn": draw.randint(1, min(3, most)),
        "selector": draw.choice(["uniform", "zipf"]),
        "alpha": draw.choice([0.7, 1.5]),
        "write_fraction": draw.choice([1.0, 0.5, 0.34]),
    }


def _transaction(draw: Draw, tables: int, partitions: int) -> dict[str, Any]:
    transaction: dict[str, Any] = {
        "cost_model": draw.choice(["spec", "iceberg", "pyiceberg"]),
        "runtime": _distribution(draw, 0.0, draw.choice([10.0, 1_000.0, 10_000.0])),
        "tables": _selection(draw, tables),
        "isolation": draw.choice(["snapshot", "serializable"]),
        "conflict_detector": draw.choice(["probabilistic", "partition_overlap"]),
        "real_conflict_probability": draw.choice([0.0, 0.3, 1.0]),
        "real_conflict": draw.choice(["abort", "merge", "restart"]),
        "conflicting_manifests": _distribution(draw, 0.0, 6.0),
        "manifests_per_concurrent_commit": draw.choice([0.0, 1.5, 2.25]),
        "table_manifests": draw.randint(0, 4),
        "max_parallel": draw.choice([1, 1, 4]),
        "manifest_list_mode": draw.choice(["rewrite", "append"]),
        "manifest_list_entry_size": draw.choice([50, 70]),
        "manifest_list_seal_threshold": draw.choice([0, 200, 1_000]),
        "manifest_list_entries": draw.choice(["orphaned", "kept"]),
        "manifest_list_scope": draw.choice(["table", "partition"]),
        "manifest_list_growth_bytes": draw.choice([0, 0, 5_000]),
        "operation_types": _mix(draw),
    }
    transaction |= _arrivals(draw) | _retries(draw)
    if draw.random() < 0.3:
        transaction["manifest_reuse"] = transaction["cost_model"] != "pyiceberg" and draw.random() < 0.5
    if draw.random() < 0.5:
        transaction["append_attempts"] = draw.choice([1, 2, 5, 100])
    if draw.random() < 0.4:
        transaction |= {"snapshot_bytes": draw.choice([900, 20_000]), "table_snapshots": draw.choice([0, 50])}
        transaction["snapshots_kept"] = draw.choice([1, 10, 60])
    if draw.random() < 0.3:
        transaction |= {"runtime_fixed_ms": draw.choice([5.0, 300.5]), "metadata_root_read": draw.random() < 0.5}
    if draw.random() < 0.5:
        transaction["partitions"] = _selection(draw, partitions)
    if draw.random() < 0.5:
        transaction["count_behind"] = draw.choice(["catalog", "table", "partition"])
    return transaction


def _mix(draw: Draw) -> dict[str, float]:
    weights = {kind: draw.choice([0.0, 0.3, 1.0]) for kind in ("fast_append", "merge_append", "validated_overwrite")}
    return weights if sum(weights.values()) else {"fast_append": 1.0}


def _arrivals(draw: Draw) -> dict[str, Any]:
    if draw.random() < 0.3:
        think = _distribution(draw, 0.0, 500.0)
        return {"arrivals": "closed", "writers": draw.choice([1, 2, 8, 30]), "think": think}
    return {"inter_arrival": _distribution(draw, 50.0, draw.choice([100.0, 500.0, 2_000.0]))}


def _retries(draw: Draw) -> dict[str, Any]:
    retries: dict[str, Any] = {}
    if draw.random() < 0.7:
        retries["retry"] = draw.choice([0, 1, 3, 10])
    if draw.random() < 0.2:
        retries["retry_timeout_ms"] = draw.choice([500.0, 5_000.0])
    if draw.random() < 0.5:
        retries["retry_backoff"] = {
            "enabled": True,
            "base_ms": draw.choice([0.0, 10.0, 100.0]),
            "multiplier": draw.choice([1.0, 2.0, 1.7]),
            "max_ms": draw.choice([100.0, 5_000.0]),
            "jitter": draw.choice([0.0, 0.1, 1.0]),
            "before_read": draw.random() < 0.5,
        }
    return retries
