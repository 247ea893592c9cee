"""Estimated cost of a run, good enough to balance bins and to announce how long a sweep takes."""

from endive.sim.config.configuration import Settings
from endive.sim.config.defaults import mean_ms
from endive.sim.config.schema import Configuration, TransactionSection

SECONDS_PER_RUN = 0.008
"""Reading the configuration, building tables, writing a row."""
SECONDS_PER_TRANSACTION = 3e-6
"""With all its retries, when most attempts fail."""
SECONDS_PER_READ = 3e-9
"""Drawing the latency of one manifest list that was missed."""
COMMITS_PER_S, COMMITS_PER_S_MAX = 5.0, 25.0
"""Typical saturated throughput of one table, and of many tables under one catalog."""


def run_seconds(settings: Settings) -> float:
    """Return the estimated seconds of one core that a run takes.

    A validated overwrite reads a manifest list for each commit that it missed while it ran: at high offered loads these
    reads, drawn one by one, are most of the cost.
    """
    return SECONDS_PER_RUN + sum(map(_class_seconds, settings.values.by_class().values()))


def _class_seconds(values: Configuration) -> float:
    duration_s = values.simulation.duration_ms / 1000
    runtime_s = mean_ms(values.transaction.runtime) / 1000
    mix = values.transaction.operation_types
    validating = mix.validated_overwrite / mix.total if mix.total else 0.0
    arrivals_per_s = _arrivals_per_s(values.transaction, runtime_s)
    commits_per_s = min(arrivals_per_s, COMMITS_PER_S * values.catalog.num_tables, COMMITS_PER_S_MAX)
    missed = commits_per_s * min(runtime_s, duration_s)
    transaction_s = SECONDS_PER_TRANSACTION + validating * missed * SECONDS_PER_READ
    return duration_s * arrivals_per_s * transaction_s


def _arrivals_per_s(transaction: TransactionSection, runtime_s: float) -> float:
    if transaction.arrivals == "open" and transaction.inter_arrival is not None:
        return 1000 / mean_ms(transaction.inter_arrival)
    cycle_s = max(runtime_s, (transaction.interval_ms or 0.0) / 1000, 1e-3)
    return (transaction.writers or 1) / cycle_s
