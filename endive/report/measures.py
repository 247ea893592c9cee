"""The measures that the report shows: their columns, their names with units, and one sentence that defines each."""

from dataclasses import dataclass

from endive.sim.cost import OPERATION_TYPES

KINDS = ("all", *OPERATION_TYPES)
"""Operation types, and all of them together."""

QUANTILES = {"p50": "p50 (median)", "p95": "p95", "p99": "p99", "p999": "p99.9"}
"""Quantiles of commit latency: the part of the column's name, and how it is shown."""

PURPOSES = {
    "time_catalog_read_ms": "catalog read",
    "time_per_attempt_io_ms": "per-attempt I/O",
    "time_conflict_io_ms": "conflict I/O",
    "time_catalog_commit_ms": "catalog commit",
    "time_backoff_ms": "backoff, repeated work",
}
"""What a transaction waits for, besides its own work."""

RATES = ("offered_per_s", "committed_per_s", "success", "retries_mean", "overhead")
LATENCIES = tuple(f"{kind}_{quantile}_ms" for kind in KINDS for quantile in QUANTILES)
FIGURES = (*RATES, *PURPOSES, *LATENCIES)
"""Figures that charts show, each with its interval."""

RUN_COLUMNS = ("family", "experiment", "seed", "status", "message")
EXPERIMENT_COLUMNS = (
    "family",
    "experiment",
    "load",
    "seeds_done",
    "seeds_failed",
    "drift",
    *(name for figure in FIGURES for name in (figure, f"{figure}_ci")),
)
CURVE_FIGURES = (
    "loads",
    "peak_committed_per_s",
    "saturation_load",
    "saturation_committed_per_s",
    "usable_load",
    "usable_committed_per_s",
    "usable_p99_ms",
    "usable_overhead",
    "fails_from_load",
)
CURVE_COLUMNS = ("family", "series", *CURVE_FIGURES)


@dataclass(frozen=True)
class Definition:
    """A word of the report and what it means, in one sentence."""

    name: str
    sentence: str


DEFINITIONS = {
    "load": Definition("Load", "The nominal load of an experiment: arrivals a second, or clients in a closed loop."),
    "offered": Definition("Offered", "Transactions submitted in the window, a second."),
    "committed": Definition("Committed", "Transactions that committed in the window, a second: the throughput."),
    "success": Definition("Success", "The share of the transactions that finished in the window which committed."),
    "latency": Definition(
        "Commit latency",
        "Time from the end of a transaction's work to its commit, of committed transactions, as exact quantiles; where"
        " many fail it can fall again, since the slow ones are not in it.",
    ),
    "usable": Definition(
        "Usable throughput",
        "Commits a second at the highest load such that it and every lower load of the sweep reach the success target.",
    ),
    "saturation": Definition(
        "Saturation",
        "The highest load up to which every step of more load brought at least half as many more commits.",
    ),
    "overhead": Definition(
        "Overhead",
        "The share of the time of finished transactions that is not their work: reading, committing, waiting.",
    ),
    "time": Definition(
        "Where the time goes",
        "Mean milliseconds of a finished transaction, committed or not, by what it waited for; not its own work.",
    ),
    "interval": Definition(
        "±, bands",
        "Half width of the 95 % confidence interval of the mean over seeds (Student's t); a band on a logarithmic scale"
        " is cut off at half of the mean.",
    ),
}
"""By a short name, under which charts say what they use."""
