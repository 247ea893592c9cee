"""Means over seeds: from the rows of runs to one row per experiment, on Spark or without it."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from endive.pipeline.run_rows import METRICS
from endive.sim.results.summary import student_95
from endive.spark.schemas import spark_schema

EXPERIMENT = ("family", "experiment")
ESTIMATES = pa.schema(
    [
        *((name, pa.string()) for name in EXPERIMENT),
        *((name, pa.int64()) for name in ("seeds_done", "seeds_failed")),
        *((column, pa.float64()) for name in METRICS for column in (name, f"{name}_ci")),
    ]
)
"""The columns of `over_seeds`."""


def over_seeds(runs: DataFrame) -> DataFrame:
    """Return one row per group and experiment: its seeds, and each metric's mean and interval over them.

    `M` is the mean over the seeds that have the metric `M` (a run that is not done has none), and `M_ci` the half-width
    of its 95 % Student interval, null for one seed. `runs` has the columns of a run and `family`.
    """
    # In Arrow, because Spark takes seconds to compile this many aggregates.
    needed = runs.select(*EXPERIMENT, "status", *METRICS)
    return needed.repartition(*EXPERIMENT).mapInArrow(_estimated, spark_schema(ESTIMATES))


def _estimated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the estimates of one Spark partition, which has all runs of its experiments."""
    parts = list(batches)
    if parts:
        yield from estimates_of(pa.Table.from_batches(parts)).to_batches()


def estimates_of(runs: pa.Table) -> pa.Table:
    """Return the rows of `over_seeds`, computed in this process."""
    if not len(runs):
        return ESTIMATES.empty_table()
    runs = runs.append_column("done", pc.equal(runs["status"], "done"))
    every, deviation = pc.CountOptions(mode="all"), pc.VarianceOptions(ddof=1)
    metrics = [each for name in METRICS for each in ((name, "mean"), (name, "stddev", deviation), (name, "count"))]
    grouped = runs.group_by(list(EXPERIMENT)).aggregate([("done", "sum"), ("done", "count", every), *metrics])
    seeds_done = grouped["done_sum"].cast(pa.int64())
    columns = [seeds_done, pc.subtract(grouped["done_count"], seeds_done)]
    for name in METRICS:
        columns += [grouped[f"{name}_mean"], _half_width(grouped[f"{name}_stddev"], grouped[f"{name}_count"])]
    return pa.table([*(grouped[name] for name in EXPERIMENT), *columns], schema=ESTIMATES)


def _half_width(deviations: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return half-widths; the deviation of one value is null, and so is its interval."""
    factors = pa.array([student_95(max(n - 1, 1)) / max(n, 1) ** 0.5 for n in range(pc.max(counts).as_py() + 1)])
    return pc.multiply(deviations, factors.take(counts.combine_chunks()))
