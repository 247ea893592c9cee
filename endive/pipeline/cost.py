"""What a run will cost, about: enough to balance bins and to say how long a sweep will take."""

from endive.sim.config.configuration import Settings
from endive.sim.config.defaults import mean_ms

SECONDS_PER_RUN = 0.008
"""Reading the configuration, making tables, writing a row."""
SECONDS_PER_TRANSACTION = 3e-6
"""With all its retries, when most are lost."""
SECONDS_PER_READ = 3e-9
"""One latency drawn for a manifest list that was missed."""
COMMITS_PER_S, COMMITS_PER_S_MAX = 5.0, 25.0
"""About what one table commits, and what many tables under one catalog commit, when more is asked of them."""


def run_seconds(settings: Settings) -> float:
    """Return about how many seconds of one core a run takes.

    A validated overwrite reads a manifest list for each commit that it missed while it worked: at high loads these
    reads, drawn one by one, are most of the cost.
    """
    values = settings.values
    duration_s = values.simulation.duration_ms / 1000
    runtime_s = mean_ms(values.transaction.runtime) / 1000
    if values.transaction.inter_arrival is None:
        arrivals_per_s = (values.transaction.writers or 1) / max(runtime_s, 1e-3)
    else:
        arrivals_per_s = 1000 / mean_ms(values.transaction.inter_arrival)
    mix = values.transaction.operation_types
    validating = mix.validated_overwrite / mix.total if mix.total else 0.0
    commits_per_s = min(arrivals_per_s, COMMITS_PER_S * values.catalog.num_tables, COMMITS_PER_S_MAX)
    missed = commits_per_s * min(runtime_s, duration_s)
    transaction_s = SECONDS_PER_TRANSACTION + validating * missed * SECONDS_PER_READ
    return SECONDS_PER_RUN + duration_s * arrivals_per_s * transaction_s
