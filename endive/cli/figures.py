"""The figures of runs as tables for the terminal."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from endive.sim.results.summary import Estimate

RATES = {
    "offered_per_s": ("offered", "/s"),
    "committed_per_s": ("committed", "/s"),
    "success": ("success", "%"),
    "success_whole_run": ("success, whole run", "%"),
    "retries_mean": ("retries per transaction", ""),
    "overhead": ("time not spent on the work", "%"),
    "transactions": ("transactions, whole run", ""),
    "unfinished": ("still in flight at the end", ""),
}
TIMES = {
    "time_ms.catalog_read": "catalog read",
    "time_ms.per_attempt_io": "per-attempt I/O",
    "time_ms.conflict_io": "conflict I/O",
    "time_ms.catalog_commit": "commit",
    "time_ms.backoff": "backoff, repeated work",
}
QUANTILES = {"p50_ms": "p50", "p95_ms": "p95", "p99_ms": "p99", "p999_ms": "p99.9"}


def number(value: float, unit: str = "") -> str:
    """Return a number with four significant digits, or as a percentage."""
    if unit == "%":
        return f"{100 * value:.1f} %"
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{text} {unit}".rstrip().replace(" /s", "/s")


def with_interval(estimate: Estimate | None, unit: str = "") -> str:
    """Return a mean with its 95 % interval, if several seeds give one."""
    if estimate is None:
        return "-"
    if estimate.half_width is None:
        return number(estimate.mean, unit)
    scale = 100 if unit == "%" else 1
    return f"{number(estimate.mean, unit)} ± {_rounded(estimate.half_width * scale)}"


def as_document(estimate: Estimate) -> dict[str, float | None]:
    """Return a mean and its 95 % interval, for JSON."""
    return {"mean": estimate.mean, "half_width_95": estimate.half_width}


def _rounded(value: float) -> str:
    """Return two significant digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def _table(first: str, *headings: str) -> Table:
    """Return an empty table: names to the left, numbers to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, min_width=34)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def rate_table(figures: Mapping[str, Estimate]) -> Table:
    """Return throughput, success, retries, and what was left unfinished."""
    table = _table("", "figure")
    for key, (name, unit) in RATES.items():
        table.add_row(name, with_interval(figures.get(key), unit))
    for key, estimate in figures.items():
        if key.startswith("aborted."):
            table.add_row(f"aborted: {key.removeprefix('aborted.')}", with_interval(estimate))
    return table


def latency_table(figures: Mapping[str, Estimate]) -> Table:
    """Return the quantiles of commit latency by operation type."""
    table = _table("commit latency, ms", "commits", *QUANTILES.values())
    kinds = dict.fromkeys(key.split(".")[1] for key in figures if key.startswith("latency."))
    for kind in kinds:
        cells = [with_interval(figures.get(f"latency.{kind}.{name}")) for name in ("commits", *QUANTILES)]
        table.add_row(kind, *cells)
    return table


def time_table(figures: Mapping[str, Estimate]) -> Table:
    """Return where the milliseconds of a finished transaction went."""
    table = _table("where the milliseconds went", "mean, ms", "share")
    total_ms = sum(figures[key].mean for key in TIMES if key in figures)
    for key, name in TIMES.items():
        if key in figures:
            share = figures[key].mean / total_ms if total_ms else 0.0
            table.add_row(name, with_interval(figures[key]), number(share, "%"))
    return table


def counter_table(counters: Sequence[Mapping[str, int]]) -> Table:
    """Return requests and outcomes by kind, of the whole run; the mean over the seeds."""
    table = _table("requests and outcomes, whole run", "count")
    for kind in sorted({name for counted in counters for name in counted}):
        mean = sum(counted.get(kind, 0) for counted in counters) / len(counters)
        table.add_row(kind.replace("_", " "), number(mean))
    return table
