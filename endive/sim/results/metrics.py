"""The metrics as data: name, label, unit and meaning of each, and how their values are written.

The summary's fields, the tables of `endive run` and `endive compare`, and the documentation use this list.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from endive.sim.results.summary import QUANTILES, Estimate

WINDOW, FINISHED, WHOLE_RUN = "window", "window, finished", "whole run"


@dataclass(frozen=True)
class Metric:
    """One metric of a run."""

    name: str
    """Dotted, as in `Summary.flat()`."""
    label: str
    unit: str
    """`/s`, `%` (of a share from 0 to 1), `ms`, or empty for a count."""
    meaning: str
    over: str = WINDOW
    """The transactions that it covers."""


RATES = (
    Metric("offered_per_s", "offered", "/s", "transactions submitted per second"),
    Metric("committed_per_s", "committed", "/s", "transactions committed per second"),
    Metric("success", "success", "%", "committed, among those that finished (committed or aborted)"),
    Metric("success_whole_run", "success, whole run", "%", "the same", WHOLE_RUN),
    Metric("retries_mean", "retries per transaction", "", "mean, of those that finished, committed or not"),
    Metric("overhead", "time not spent on the work", "%", "share of their total time that is not runtime", FINISHED),
    Metric("transactions", "transactions, whole run", "", "submitted", WHOLE_RUN),
    Metric("unfinished", "still in flight at the end", "", "neither committed nor aborted at the end", WHOLE_RUN),
)
TIMES = (
    Metric(
        "time_ms.catalog_read",
        "catalog read",
        "ms",
        "mean time in catalog reads, the first one and that of separate table metadata included",
        FINISHED,
    ),
    Metric(
        "time_ms.per_attempt_io",
        "per-attempt I/O",
        "ms",
        "mean time preparing attempts, ML+ appends included",
        FINISHED,
    ),
    Metric(
        "time_ms.conflict_io",
        "conflict I/O",
        "ms",
        "mean time reading missed snapshots and merging real conflicts",
        FINISHED,
    ),
    Metric(
        "time_ms.catalog_commit",
        "commit",
        "ms",
        "mean time in `catalog.commit()`: swap, or compaction, append and discovery read",
        FINISHED,
    ),
    Metric(
        "time_ms.backoff",
        "backoff, repeated work",
        "ms",
        'rest of the total latency: waits between retries; with `real_conflict = "restart"` also the repeated work',
        FINISHED,
    ),
)
METRICS = (*RATES, *TIMES)
LABELS = {name: f"p{100 * probability:g}" for name, probability in QUANTILES.items()}
"""The quantiles of commit latency, as people write them."""


def latency_metrics(names: Iterable[str]) -> list[Metric]:
    """Return the latency metrics among dotted names such as `latency.all.p999_ms`."""
    found = []
    for name in names:
        if name.startswith("latency."):
            _, kind, quantity = name.split(".")
            label = f"{kind} {LABELS[quantity]}, ms" if quantity in LABELS else f"{kind} {quantity}"
            found.append(Metric(name, label, "", "commit latency"))
    return found


def number(value: float, unit: str = "") -> str:
    """Return a number with four significant digits, or as a percentage; `ms` is left to the heading."""
    if unit == "%":
        return f"{100 * value:.1f} %"
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{text}{unit}" if unit == "/s" else text


def with_interval(estimate: Estimate | None, unit: str = "") -> str:
    """Return a mean with its 95 % interval, if several seeds give one."""
    if estimate is None:
        return "-"
    if estimate.half_width is None:
        return number(estimate.mean, unit)
    scale = 100 if unit == "%" else 1
    return f"{number(estimate.mean, unit)} ± {_rounded(estimate.half_width * scale)}"


def _rounded(value: float) -> str:
    """Return two significant digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def as_document(estimate: Estimate, trust: str | None = None) -> dict[str, float | str | None]:
    """Return a mean and its 95 % interval, for JSON; with the trust in what it rests on, if that is known."""
    return {"mean": estimate.mean, "half_width_95": estimate.half_width} | ({"trust": trust} if trust else {})


def bounds(estimate: Estimate) -> dict[str, float]:
    """Return a mean and the ends of its 95 % interval, for charts."""
    half_width = estimate.half_width or 0.0
    return {"mean": estimate.mean, "low": estimate.mean - half_width, "high": estimate.mean + half_width}
