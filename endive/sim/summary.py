"""The figures of a run: what people want to know of a table of transactions.

The window is in virtual time: a transaction counts in it if it *finished* in it, an arrival if it was submitted in it.
The functions are pure; they take a table with the specification's columns and return values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from endive.sim.cost import OPERATION_TYPES

Array = npt.NDArray[Any]
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Window:
    """From and to, in milliseconds of virtual time; the end is not part of it."""

    start_ms: float
    end_ms: float

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.end_ms - self.start_ms) / 1000.0

    def holds(self, times_ms: Array) -> Array:
        """Return which times lie in the window."""
        inside: Array = (times_ms >= self.start_ms) & (times_ms < self.end_ms)
        return inside


@dataclass(frozen=True)
class LatencyFigures:
    """Commit latency of the committed transactions of one type. None: there were none."""

    commits: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class Summary:
    """The figures of one run. Rates are of the window; what is not, says so."""

    window: Window
    offered_per_s: float
    committed_per_s: float
    success: float | None
    """Committed among those that finished in the window. None: none finished."""
    success_whole_run: float | None
    """The same over the whole run, warm-up and cool-down included."""
    latency: Mapping[str, LatencyFigures]
    """By operation type, and `all`."""
    retries_mean: float | None
    """Of the transactions that finished, committed or not."""
    time_ms: Mapping[str, float]
    """Mean milliseconds of a finished transaction, by purpose."""
    aborted: Mapping[str, int]
    """By reason."""
    unfinished: int
    """In flight when the run ended; whole run."""
    transactions: int
    """Submitted; whole run."""

    def flat(self) -> dict[str, float | None]:
        """Return the figures by dotted name, for comparing and averaging."""
        return dict(_flatten(asdict(self)))


TIME_PURPOSES = ("catalog_read", "per_attempt_io", "conflict_io", "catalog_commit", "backoff")


def summarise(table: pa.Table, window: Window) -> Summary:
    """Return the figures of a table of transactions."""
    columns = {
        name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names if name != "abort_reason"
    }
    committed, aborted = columns["status"] == "committed", columns["status"] == "aborted"
    finished = committed | aborted
    counted = finished & window.holds(columns["t_submit"] + columns["total_latency"])
    commits = committed & counted
    return Summary(
        window=window,
        offered_per_s=_per_second(window.holds(columns["t_submit"]), window),
        committed_per_s=_per_second(commits, window),
        success=_share(commits, counted),
        success_whole_run=_share(committed, finished),
        latency=_latencies(columns["commit_latency"], columns["operation_type"], commits),
        retries_mean=float(columns["n_retries"][counted].mean()) if counted.any() else None,
        time_ms=_times(columns, counted),
        aborted=_reasons(table.filter(pa.array(counted & aborted))),
        unfinished=int((~finished).sum()),
        transactions=table.num_rows,
    )


def _per_second(chosen: Array, window: Window) -> float:
    return float(chosen.sum()) / window.seconds


def _share(part: Array, whole: Array) -> float | None:
    return float(part.sum() / whole.sum()) if whole.any() else None


def _latencies(latency_ms: Array, kinds: Array, commits: Array) -> dict[str, LatencyFigures]:
    chosen = {"all": commits} | {kind: commits & (kinds == kind) for kind in OPERATION_TYPES}
    return {name: _figures(latency_ms[rows]) for name, rows in chosen.items() if name == "all" or rows.any()}


def _figures(latency_ms: Array) -> LatencyFigures:
    if not latency_ms.size:
        return LatencyFigures(0, None, None, None)
    return LatencyFigures(int(latency_ms.size), *(float(q) for q in np.quantile(latency_ms, QUANTILES)))


def _times(columns: Mapping[str, Array], counted: Array) -> dict[str, float]:
    """Return the mean milliseconds by purpose. What is neither work nor I/O is waiting: the backoff."""
    if not counted.any():
        return {}
    means = {name: float(columns[f"{name}_ms"][counted].mean()) for name in TIME_PURPOSES[:-1]}
    busy_ms = sum(means.values()) + float(columns["t_runtime"][counted].mean())
    rest_ms = round(float(columns["total_latency"][counted].mean()) - busy_ms, 6)  # times are whole nanoseconds
    return means | {"backoff": rest_ms}


def _reasons(aborted: pa.Table) -> dict[str, int]:
    counts = pc.value_counts(aborted["abort_reason"]).to_pylist()
    return {entry["values"]: entry["counts"] for entry in counts}


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the half-width of its 95 % confidence interval. None: one seed gives no interval."""

    mean: float
    half_width: float | None


def estimates(summaries: Sequence[Summary]) -> dict[str, Estimate]:
    """Return each figure's mean and interval over several seeds. A figure that some seed lacks is left out."""
    flat = [summary.flat() for summary in summaries]
    figures: dict[str, Estimate] = {}
    for name in flat[0]:
        values = [value for run in flat if (value := run.get(name)) is not None]
        if len(values) == len(flat):
            figures[name] = estimate(values)
    return figures


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of `values` and the half-width of its Student interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean, None)
    deviation = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Estimate(mean, student_95(len(values) - 1) * deviation)


_STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""97.5 % quantile of Student's t for 1 to 10 degrees of freedom, from any table."""


def student_95(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t, within half a percent."""
    if degrees <= len(_STUDENT_95):
        return _STUDENT_95[degrees - 1]
    return 1.96 + 2.37 / degrees + 2.8 / degrees**2


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float | None]]:
    pairs: list[tuple[str, float | None]] = []
    for name, value in values.items():
        pairs += _flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(prefix + name, value)]
    return pairs
