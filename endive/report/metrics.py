"""The metrics that the report shows: their columns, their names with units, and a one-sentence definition of each.

The columns are derived from `endive.sim.results.summary`, which computes the metrics; a test compares them with the
files that a sweep writes.
"""

from dataclasses import dataclass

from endive.sim.operations import SPECIFIED_TYPES
from endive.sim.results import summary
from endive.sim.results.columns import TIME_PURPOSES
from endive.sim.results.labels import TRUST

OPERATIONS = ("all", *SPECIFIED_TYPES)
"""Operation types, and all of them together."""

_QUANTILES = tuple(name.removesuffix("_ms") for name in summary.QUANTILES)
QUANTILES = {name: {"p50": "p50 (median)", "p999": "p99.9"}.get(name, name) for name in _QUANTILES}
"""Quantiles of commit latency: the part of the column's name, and its label."""

_PURPOSE_LABELS = {
    "per_attempt_io": "per-attempt I/O",
    "conflict_io": "conflict I/O",
    "backoff": "backoff, repeated work",
}
PURPOSES = {f"time_{name}_ms": _PURPOSE_LABELS.get(name, name.replace("_", " ")) for name in TIME_PURPOSES}
"""Columns and labels of the time that a transaction spends besides its own work."""

RATES = ("offered_per_s", "committed_per_s", "success", "retries_mean", "overhead")
LATENCIES = tuple(f"{operation}_{quantile}_ms" for operation in OPERATIONS for quantile in QUANTILES)
METRICS = (*RATES, *PURPOSES, *LATENCIES)
"""Metrics that charts show, each with its interval."""

RUN_COLUMNS = ("family", "experiment", "seed", "status", "message")
EXPERIMENT_COLUMNS = (
    "family",
    "experiment",
    "load",
    "seeds_done",
    "seeds_failed",
    "drift",
    *(column for name in METRICS for column in (name, f"{name}_ci")),
)
CURVE_METRICS = (
    "loads",
    "peak_committed_per_s",
    "saturation_load",
    "saturation_committed_per_s",
    "usable_load",
    "usable_committed_per_s",
    "usable_p99_ms",
    "usable_overhead",
    "usable_dollars_per_million_commits",
    "fails_from_load",
)
LATER_COLUMNS = ("usable_dollars_per_million_commits", TRUST)
"""Columns of curves that measures of version 0.1.0 do not have."""
CURVE_COLUMNS = ("family", "series", *(name for name in CURVE_METRICS if name not in LATER_COLUMNS))
BREAKDOWN_METRICS = ("committed_per_s", "success", "retries_mean", "p50_ms", "p99_ms")
BREAKDOWN_COLUMNS = (
    "family",
    "experiment",
    "by",
    "name",
    *(column for name in BREAKDOWN_METRICS for column in (name, f"{name}_ci")),
)


@dataclass(frozen=True)
class Definition:
    """A term of the report and its meaning, in one sentence."""

    name: str
    sentence: str


DEFINITIONS = {
    "load": Definition(
        "Offered load", "The nominal load of an experiment: arrivals per second, or writers in a closed loop."
    ),
    "offered": Definition("Offered", "Transactions submitted per second within the measured window."),
    "committed": Definition("Committed", "Transactions committed per second within the window: the throughput."),
    "success": Definition("Success", "Share of the transactions finished in the window that committed."),
    "latency": Definition(
        "Commit latency",
        "Time from the end of a transaction's runtime to its commit, as exact quantiles over committed transactions. It"
        " can fall at high load, because slow transactions fail and are not counted.",
    ),
    "sustainable": Definition(
        "Sustainable throughput",
        "Commits per second at the highest offered load that reaches the success target, as every lower load does.",
    ),
    "saturation": Definition(
        "Saturation",
        "The highest offered load up to which each increase of the load adds at least half as many commits.",
    ),
    "overhead": Definition(
        "Overhead",
        "Share of the time of finished transactions that is not their own runtime: reading, committing, waiting.",
    ),
    "time": Definition(
        "Where the time goes",
        "Mean milliseconds of a finished transaction, committed or not, by activity, without its own runtime.",
    ),
    "interval": Definition(
        "±, bands",
        "Half-width of the 95 % confidence interval of the mean over seeds (Student's t). On a logarithmic scale a band"
        " is cut off at half of the mean.",
    ),
}
"""By the short name that charts refer to."""
