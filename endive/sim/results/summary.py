"""The metrics of a run: throughput, success, latency, and where the time went.

The window is in virtual time. A transaction counts if it *finished* in the window, an arrival if it came in it.
`metrics` has the name, unit and meaning of each metric.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from endive.errors import InvariantError
from endive.sim.operations import OPERATION_TYPES
from endive.sim.results.columns import (
    REASONS,
    REQUESTS,
    STATUSES,
    TIME_PURPOSES,
    Array,
    Columns,
    class_names,
    to_columns,
)
from endive.timing import TICKS_PER_MS, to_ticks

QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
"""The quantiles of commit latency, by the name of their metric."""


@dataclass(frozen=True)
class Window:
    """From and to, in milliseconds of virtual time; the end is not part of it."""

    start_ms: float
    end_ms: float

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.end_ms - self.start_ms) / 1000.0


@dataclass(frozen=True)
class LatencyMetrics:
    """Commit latency of the committed transactions of one type. None: there were none."""

    commits: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p999_ms: float | None


@dataclass(frozen=True)
class TableMetrics:
    """The transactions that write one table. Of several tables written, a transaction counts for the first."""

    finished_per_s: float
    committed_per_s: float
    success: float | None
    retries_mean: float | None
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class Summary:
    """The metrics of one run. Rates are of the window unless their docstring says otherwise."""

    window: Window
    offered_per_s: float
    finished_per_s: float
    """Committed or given up."""
    committed_per_s: float
    success: float | None
    """Committed among those that finished in the window. None: none finished."""
    success_whole_run: float | None
    """The same over the whole run, warm-up and cool-down included."""
    latency: Mapping[str, LatencyMetrics]
    """By operation type, and `all`."""
    retries_mean: float | None
    """Of the transactions that finished, committed or not."""
    time_ms: Mapping[str, float]
    """Mean milliseconds of a finished transaction, by purpose."""
    overhead: float | None
    """Share of the time of finished transactions that is not their runtime."""
    requests: Mapping[str, float]
    """Mean number of manifest requests of a finished transaction, by kind."""
    aborted: Mapping[str, int]
    """Number of aborted transactions, by reason."""
    unfinished: int
    """In flight when the run ended; whole run."""
    transactions: int
    """Submitted; whole run."""
    drift: float | None = None
    """Change within the window, if it is more than chance: the run has not settled. None also if it ended early."""
    classes: Mapping[str, "Summary"] = field(default_factory=dict)
    """The same of each class of transactions, if there are several."""
    tables: Mapping[str, TableMetrics] = field(default_factory=dict)
    """By number of the table, the one with the most retries first, if there are several; at most `TABLES_MAX`."""

    def flat(self) -> dict[str, float | None]:
        """Return the metrics by dotted name, for comparing and averaging."""
        values = dict(_flatten(asdict(replace(self, classes={}))))
        for name, one in self.classes.items():
            found = one.flat().items()
            values |= {f"classes.{name}.{key}": value for key, value in found if not key.startswith("window.")}
        return values


TABLES_MAX = 20
"""Tables that a summary has metrics of: those with the most retries."""

BINS = 20
"""The window is cut into so many parts to see whether it is stationary."""


def check_commits(committed: int, unfinished: int, seq: int) -> None:
    """Check that commits equal the catalog's `seq`.

    A commit whose answer is still on its way back at the end of the run is installed, but not yet a commit here.
    """
    if not 0 <= seq - committed <= unfinished:
        raise InvariantError("commits equal seq", f"{committed} commits, but seq is {seq}")


class Glance:
    """Counts finished transactions and commits of the window so far, by class: enough to see a clear miss early."""

    def __init__(self, window: Window, classes: Sequence[str] = ()) -> None:
        self._limits = (to_ticks(window.start_ms), to_ticks(window.end_ms))
        self._classes = {name: Glance(window) for name in classes} if len(classes) > 1 else {}
        self.counted = 0
        """Transactions that have finished in the window so far."""
        self.successes = 0
        """Those of them that committed."""

    def add(self, columns: Columns) -> None:
        """Add rows, each transaction once."""
        ends, status = columns["t_submit"] + columns["total_latency"], columns["status"]
        inside = (ends >= self._limits[0]) & (ends < self._limits[1])
        committed = inside & (status == STATUSES.index("committed"))
        counted = committed | (inside & (status == STATUSES.index("aborted")))
        self._count(counted, committed)
        for code, glance in enumerate(self._classes.values()):
            of_class = columns["class"] == code
            glance._count(counted & of_class, committed & of_class)

    def _count(self, counted: Array, committed: Array) -> None:
        self.counted += int(np.count_nonzero(counted))
        self.successes += int(np.count_nonzero(committed))

    def of_class(self, name: str) -> "Glance":
        """Return the transactions of one class; all of them if there is no such class."""
        return self._classes.get(name, self)


class Tally:
    """Adds up transactions, all at once or in batches; the result does not depend on the batches.

    Rows are given as integer columns. Only counts, sums and the commit latencies of the window are kept.
    """

    def __init__(self, window: Window, classes: Sequence[str] = (), tables: bool = True) -> None:
        """`classes` are the names of the classes; `tables=False` leaves out the metrics of tables."""
        self._window = window
        self._classes = {name: Tally(window, tables=False) for name in classes} if len(classes) > 1 else {}
        self._tables = _TableTally() if tables else None
        self._limits = (to_ticks(window.start_ms), to_ticks(window.end_ms))
        self._counts: Counter[str] = Counter()
        self._spent: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._latencies: list[Array] = []
        self._kinds: list[Array] = []
        self._finished = np.zeros(BINS, np.int64)
        self._committed = np.zeros(BINS, np.int64)

    def add(self, columns: Columns) -> None:
        """Add rows, each transaction once."""
        ends = columns["t_submit"] + columns["total_latency"]
        committed, aborted = (
            columns["status"] == STATUSES.index("committed"),
            columns["status"] == STATUSES.index("aborted"),
        )
        finished = committed | aborted
        counted = finished & self._holds(ends)
        commits = committed & counted
        self._counts.update(
            transactions=len(ends),
            offered=int(self._holds(columns["t_submit"]).sum()),
            committed=int(committed.sum()),
            finished=int(finished.sum()),
            counted=int(counted.sum()),
            retries=int(columns["n_retries"][counted].sum()),
        )
        for name in ("total_latency", "t_runtime", *REQUESTS, *(f"{purpose}_ms" for purpose in TIME_PURPOSES[:-1])):
            self._spent[name] += int(columns[name][counted].sum())
        for code, count in zip(*np.unique(columns["abort_reason"][counted & aborted], return_counts=True), strict=True):
            self._reasons[REASONS[max(code, 0)] or "unknown"] += int(count)
        self._latencies.append(columns["commit_latency"][commits])
        self._kinds.append(columns["operation_type"][commits])
        self._finished += np.histogram(ends[counted], BINS, self._limits)[0]
        self._committed += np.histogram(ends[commits], BINS, self._limits)[0]
        if self._tables:
            self._tables.add(columns, counted, commits)
        for code, tally in enumerate(self._classes.values()):
            of_class = columns["class"] == code
            if of_class.any():
                tally.add({name: column[of_class] for name, column in columns.items()})

    def _holds(self, ticks: Array) -> Array:
        inside: Array = (ticks >= self._limits[0]) & (ticks < self._limits[1])
        return inside

    def check(self, seq: int) -> None:
        """Check that commits equal the catalog's `seq`, once every transaction has been added."""
        unfinished = self._counts["transactions"] - self._counts["finished"]
        check_commits(self._counts["committed"], unfinished, seq)

    def summary(self, reached_ms: float = math.inf) -> Summary:
        """Return the metrics of everything added; if the run ended before the window did, of the part it reached."""
        counts = self._counts
        whole = math.isinf(reached_ms) or to_ticks(reached_ms) >= self._limits[1]
        window = self._window if whole else Window(self._window.start_ms, max(reached_ms, self._window.start_ms + 1.0))
        latency_ms = np.concatenate([*self._latencies, _NO_TICKS]) / TICKS_PER_MS
        kinds = np.concatenate([*self._kinds, _NO_TICKS])
        return Summary(
            window=window,
            offered_per_s=counts["offered"] / window.seconds,
            finished_per_s=counts["counted"] / window.seconds,
            committed_per_s=latency_ms.size / window.seconds,
            success=_share(latency_ms.size, counts["counted"]),
            success_whole_run=_share(counts["committed"], counts["finished"]),
            latency=_latencies(latency_ms, kinds),
            retries_mean=_share(counts["retries"], counts["counted"]),
            time_ms=_times(self._spent, counts["counted"]),
            overhead=_overhead(self._spent),
            requests={name: self._spent[name] / counts["counted"] for name in REQUESTS if counts["counted"]},
            aborted=dict(sorted(self._reasons.items())),
            unfinished=counts["transactions"] - counts["finished"],
            transactions=counts["transactions"],
            drift=drift(self._finished, self._committed) if whole else None,
            classes={name: tally.summary(reached_ms) for name, tally in self._classes.items()},
            tables=self._tables.metrics(latency_ms, window) if self._tables else {},
        )


class _TableTally:
    """Adds up transactions by table."""

    def __init__(self) -> None:
        self._counts = np.zeros((3, 1), np.int64)
        """Finished, committed, retries: a column for each table."""
        self._commits: list[Array] = []

    def add(self, columns: Columns, counted: Array, commits: Array) -> None:
        """Add rows; `counted` and `commits` say which of them finished and committed in the window."""
        tables = columns["table"]
        self._commits.append(tables[commits])
        if not tables.size:
            return
        missing = int(tables.max()) + 1 - self._counts.shape[1]
        if missing > 0:
            self._counts = np.pad(self._counts, ((0, 0), (0, missing)))
        length = self._counts.shape[1]
        finished = tables[counted]
        self._counts[0] += np.bincount(finished, minlength=length)
        self._counts[1] += np.bincount(tables[commits], minlength=length)
        self._counts[2] += np.bincount(finished, columns["n_retries"][counted], length).astype(np.int64)

    def metrics(self, latency_ms: Array, window: Window) -> dict[str, TableMetrics]:
        """Return the metrics of the hottest tables; none if there is one table. `latency_ms` is of all commits."""
        finished, committed, retries = self._counts
        if len(finished) < 2:
            return {}
        hottest = np.lexsort((-finished, -retries))[:TABLES_MAX]
        tables = np.concatenate(self._commits)
        found = {}
        for table in hottest[finished[hottest] > 0].tolist():
            own = _metrics(latency_ms[tables == table])
            found[str(table)] = TableMetrics(
                finished_per_s=int(finished[table]) / window.seconds,
                committed_per_s=int(committed[table]) / window.seconds,
                success=_share(int(committed[table]), int(finished[table])),
                retries_mean=_share(int(retries[table]), int(finished[table])),
                p50_ms=own.p50_ms,
                p99_ms=own.p99_ms,
            )
        return found


def summarise(rows: pa.Table | Columns, window: Window, classes: Sequence[str] | None = None) -> Summary:
    """Return the metrics of a table of transactions, or of the same rows as integer columns.

    `classes` are the names of the classes; of a table, by default those that occur in it.
    """
    if isinstance(rows, pa.Table):
        classes = class_names(rows) if classes is None else classes
        rows = to_columns(rows, classes)
    tally = Tally(window, classes or ())
    tally.add(rows)
    return tally.summary()


_NO_TICKS = np.zeros(0, np.int64)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _latencies(latency_ms: Array, kinds: Array) -> dict[str, LatencyMetrics]:
    by_kind = {name: latency_ms[kinds == code] for code, name in enumerate(OPERATION_TYPES)}
    return {"all": _metrics(latency_ms)} | {name: _metrics(part) for name, part in by_kind.items() if part.size}


def _metrics(latency_ms: Array) -> LatencyMetrics:
    if not latency_ms.size:
        return LatencyMetrics(0, *[None] * len(QUANTILES))
    return LatencyMetrics(int(latency_ms.size), *map(float, np.quantile(latency_ms, [*QUANTILES.values()])))


def _times(spent: Mapping[str, int], counted: int) -> dict[str, float]:
    """Return the mean milliseconds by purpose.

    Time that is neither runtime nor I/O is backoff; where real conflicts restart transactions, also the repeated work.
    """
    if not counted:
        return {}
    ticks = {name: spent[f"{name}_ms"] for name in TIME_PURPOSES[:-1]}
    ticks["backoff"] = spent["total_latency"] - spent["t_runtime"] - sum(ticks.values())
    return {name: value / TICKS_PER_MS / counted for name, value in ticks.items()}


def _overhead(spent: Mapping[str, int]) -> float | None:
    return 1 - spent["t_runtime"] / spent["total_latency"] if spent["total_latency"] else None


def drift(finished: Array, committed: Array) -> float | None:
    """Return the largest change, as a share, from the first half of the window to the second.

    Compared are the rates of finished transactions and of commits, and success, by equal parts of the window. None:
    they change by no more than chance would, so the window may be taken as stationary. The halves are compared by the
    variance of the parts within them, at three standard errors; a change of less than 3 % is never reported.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        success = np.where(finished > 0, committed / finished, 0.0)
    changes = [change for series in (finished, committed, success) if (change := _change(series)) is not None]
    return max(changes, key=abs, default=None)


def _change(series: Array) -> float | None:
    first, second = series[: BINS // 2], series[BINS // 2 :]
    if not first.sum():
        return None if not second.sum() else 1.0  # from nothing
    change = float(second.mean() / first.mean()) - 1.0
    error = float(np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / (BINS // 2))) / float(first.mean())
    return change if abs(change) > max(0.03, 3 * error) else None


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the half-width of its 95 % confidence interval. None: one seed gives no interval."""

    mean: float
    half_width: float | None


def estimates(flat: Sequence[Mapping[str, float | None]]) -> dict[str, Estimate]:
    """Return the mean and interval over seeds of metrics by name. A metric that some seed lacks is left out."""
    found: dict[str, Estimate] = {}
    for name in flat[0]:
        values = [value for run in flat if (value := run.get(name)) is not None]
        if len(values) == len(flat):
            found[name] = estimate(values)
    return found


def differences(
    before: Sequence[Mapping[str, float | None]], after: Sequence[Mapping[str, float | None]]
) -> dict[str, Estimate]:
    """Return the mean of the differences seed by seed, with its interval, of metrics by name."""
    changes: dict[str, Estimate] = {}
    for name in before[0]:
        pairs = [(one.get(name), two.get(name)) for one, two in zip(before, after, strict=True)]
        values = [two - one for one, two in pairs if one is not None and two is not None]
        if len(values) == len(pairs):
            changes[name] = estimate(values)
    return changes


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
