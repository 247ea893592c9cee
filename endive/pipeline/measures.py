"""Measures on Spark: from transactions to the figures of runs, and from runs to means over seeds.

Every function takes frames and returns a frame; nothing is computed before the frame is used. The figures are those of
`endive.sim.results.summary`, to the last digits: times are compared and added as ticks, and percentiles are exact.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from endive.pipeline.run_rows import FIGURES, KINDS, RUN_SCHEMA
from endive.sim.cost import OPERATION_TYPES
from endive.sim.results.columns import REASONS, REQUESTS, TIME_PURPOSES
from endive.sim.results.summary import BINS, QUANTILES, drift, student_95
from endive.spark.schemas import spark_schema
from endive.timing import TICKS_PER_MS

RUN = ("experiment", "seed")
EXPERIMENT = ("family", "experiment")
WINDOW = ("window_start_ms", "window_end_ms")
RUN_FIGURES = tuple(name for name in FIGURES if name != "cpu_s")
"""What can be told from the transactions."""
PERCENTILES = QUANTILES
ESTIMATES = pa.schema(
    [
        *((name, pa.string()) for name in EXPERIMENT),
        *((name, pa.int64()) for name in ("seeds_done", "seeds_failed")),
        *((column, pa.float64()) for name in FIGURES for column in (name, f"{name}_ci")),
    ]
)
"""The columns of `over_seeds`."""


def run_figures(transactions: DataFrame, windows: DataFrame) -> DataFrame:
    """Return the figures of each run: the columns of `RUN` and `RUN_FIGURES`.

    `transactions` has the columns of `endive.sim.results.statistics.SCHEMA` and of `RUN`. `windows` has one row per
    run, with the columns of `RUN` and `WINDOW`; a run without transactions gets its row all the same. The commit
    latencies of a hundred runs must fit into the memory of a task (24 bytes each); nothing else grows with
    the transactions.
    """
    placed = _placed(transactions, windows)
    figures = windows.join(_totals(placed), list(RUN), "left").join(_latencies(placed), list(RUN), "left")
    return figures.join(_drifts(placed), list(RUN), "left").select(*RUN, *_run_columns())


def _ticks(name: str) -> Column:
    return F.rint(F.col(name) * TICKS_PER_MS).cast("long")


def _placed(transactions: DataFrame, windows: DataFrame) -> DataFrame:
    """Return the transactions with their place in the window; `end` is in ticks from its start."""
    limits = windows.select(*RUN, *(_ticks(name).alias(name) for name in WINDOW))
    start, length = F.col(WINDOW[0]), F.col(WINDOW[1]) - F.col(WINDOW[0])
    submitted, ended = _ticks("t_submit") - start, _ticks("t_submit") + _ticks("total_latency") - start
    return (
        transactions.join(F.broadcast(limits), list(RUN))
        .withColumns({"end": ended, "length": length, "offered": (submitted >= 0) & (submitted < length)})
        .withColumn("finished", F.col("status").isin("committed", "aborted"))
        .withColumn("counted", F.col("finished") & (F.col("end") >= 0) & (F.col("end") < F.col("length")))
    )


def _totals(placed: DataFrame) -> DataFrame:
    """Return counts, and sums over the transactions that finished in the window, in ticks."""
    counted, committed = F.col("counted"), F.col("status") == "committed"
    counts = {"offered": F.col("offered"), "finished": F.col("finished"), "counted": counted, "committed": committed}
    counts |= {
        f"aborted_{reason}": counted & (F.col("status") == "aborted") & (F.col("abort_reason") == reason)
        for reason in REASONS
        if reason
    }
    times = ("total_latency", "t_runtime", *(f"{purpose}_ms" for purpose in TIME_PURPOSES[:-1]))
    sums = {name: _ticks(name) for name in times} | {name: F.col(name) for name in ("n_retries", *REQUESTS)}
    return placed.groupBy(*RUN).agg(
        F.count("*").alias("transactions"),
        *(F.count_if(condition).alias(name) for name, condition in counts.items()),
        *(F.sum(F.when(counted, value)).alias(f"sum_{name}") for name, value in sums.items()),
    )


def _latencies(placed: DataFrame) -> DataFrame:
    """Return each run's commit latencies in the window by `KINDS`, in ticks and in order.

    Collected and sorted, for Spark's own exact percentile keeps a map of distinct values, which here is all of them.
    """
    commits = placed.where(F.col("counted") & (F.col("status") == "committed"))
    by_type = commits.groupBy(*RUN).agg(
        *(
            F.collect_list(F.when(F.col("operation_type") == name, _ticks("commit_latency"))).alias(name)
            for name in OPERATION_TYPES
        )
    )
    everything = F.sort_array(F.concat(*OPERATION_TYPES)).alias("all")
    return by_type.select(*RUN, everything, *(F.sort_array(name).alias(name) for name in OPERATION_TYPES))


def _drifts(placed: DataFrame) -> DataFrame:
    """Return each run's `drift`; `summary.drift` judges the counts by equal parts of the window."""
    part = F.expr(f"end * {BINS} div length").alias("part")
    parts = (
        placed.where("counted")
        .groupBy(*RUN, part)
        .agg(F.count("*").alias("finished"), F.count_if(F.col("status") == "committed").alias("committed"))
    )
    schema = spark_schema([*(RUN_SCHEMA.field(name) for name in RUN), RUN_SCHEMA.field("drift")])
    return parts.groupBy(*RUN).applyInArrow(_drift_of, schema)


def _drift_of(parts: pa.Table) -> pa.Table:
    series = {name: np.zeros(BINS, np.int64) for name in ("finished", "committed")}
    for name, counts in series.items():
        counts[parts["part"].to_numpy()] = parts[name].to_numpy()
    keys = {name: parts[name].slice(0, 1) for name in RUN}
    return pa.table({**keys, "drift": pa.array([drift(**series)], pa.float64())})


def _run_columns() -> Iterator[Column]:
    """Yield the figures from totals, latencies and drift, in the order of `RUN_FIGURES`."""
    columns = _rates() | _times() | {name: _mean(f"sum_{name}") for name in REQUESTS}
    columns |= {f"aborted_{reason}": _count(f"aborted_{reason}") for reason in REASONS if reason}
    columns |= {"drift": F.col("drift")}
    for kind in KINDS:
        columns[f"{kind}_commits"] = F.coalesce(F.size(kind), F.lit(0)).cast("long")
        columns |= {f"{kind}_{name}": _quantile(F.col(kind), at) for name, at in PERCENTILES.items()}
    yield from (columns[name].alias(name) for name in RUN_FIGURES)


def _count(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0).cast("long"))


def _mean(total: str) -> Column:
    return F.try_divide(F.col(total), F.col("counted"))


def _rates() -> dict[str, Column]:
    seconds = (F.col(WINDOW[1]) - F.col(WINDOW[0])) / 1000.0
    commits = F.coalesce(F.size("all"), F.lit(0))
    return {
        "transactions": _count("transactions"),
        "unfinished": _count("transactions") - _count("finished"),
        "offered_per_s": _count("offered") / seconds,
        "finished_per_s": _count("counted") / seconds,
        "committed_per_s": commits / seconds,
        "success": F.try_divide(commits, F.col("counted")),
        "success_whole_run": F.try_divide(F.col("committed"), F.col("finished")),
        "retries_mean": _mean("sum_n_retries"),
        "overhead": 1 - F.try_divide(F.col("sum_t_runtime"), F.col("sum_total_latency")),
    }


def _times() -> dict[str, Column]:
    """Return the mean milliseconds by purpose; what is neither work nor I/O is backoff."""
    spent = {purpose: F.col(f"sum_{purpose}_ms") for purpose in TIME_PURPOSES[:-1]}
    rest = F.col("sum_total_latency") - F.col("sum_t_runtime")
    for ticks in spent.values():
        rest -= ticks
    spent["backoff"] = rest
    return {
        f"time_{purpose}_ms": F.try_divide(ticks / TICKS_PER_MS, F.col("counted")) for purpose, ticks in spent.items()
    }


def _quantile(ordered: Column, at: float) -> Column:
    """Return a quantile of ticks in order, in milliseconds: linear between the two nearest. None of none."""
    place = (F.size(ordered) - 1) * F.lit(at)
    below, above = F.get(ordered, F.floor(place).cast("int")), F.get(ordered, F.ceil(place).cast("int"))
    return (below + (above - below) * (place - F.floor(place))) / TICKS_PER_MS


def over_seeds(runs: DataFrame) -> DataFrame:
    """Return one row per experiment of a family: its seeds, and each figure's mean and interval over them.

    `F` is the mean over the seeds that have the figure (a run that is not done has none) and `F_ci` the half-width of
    its 95 % Student interval; with one seed there is none. `runs` has the columns of a run and `family`.
    """
    # In Arrow, for Spark needs seconds to compile so many aggregates.
    needed = runs.select(*EXPERIMENT, "status", *FIGURES)
    return needed.repartition(*EXPERIMENT).mapInArrow(_estimated, spark_schema(ESTIMATES))


def _estimated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the estimates of one Spark partition, which has all runs of its experiments."""
    parts = list(batches)
    if not parts:
        return
    runs = pa.Table.from_batches(parts)
    runs = runs.append_column("done", pc.equal(runs["status"], "done"))
    every, deviation = pc.CountOptions(mode="all"), pc.VarianceOptions(ddof=1)
    figures = [each for name in FIGURES for each in ((name, "mean"), (name, "stddev", deviation), (name, "count"))]
    grouped = runs.group_by(list(EXPERIMENT)).aggregate([("done", "sum"), ("done", "count", every), *figures])
    seeds_done = grouped["done_sum"].cast(pa.int64())
    columns = [seeds_done, pc.subtract(grouped["done_count"], seeds_done)]
    for name in FIGURES:
        columns += [grouped[f"{name}_mean"], _half_width(grouped[f"{name}_stddev"], grouped[f"{name}_count"])]
    yield from pa.table([*(grouped[name] for name in EXPERIMENT), *columns], schema=ESTIMATES).to_batches()


def _half_width(deviations: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return half-widths; the deviation of one value is null, and so is its interval."""
    factors = pa.array([student_95(max(n - 1, 1)) / max(n, 1) ** 0.5 for n in range(pc.max(counts).as_py() + 1)])
    return pc.multiply(deviations, factors.take(counts.combine_chunks()))
