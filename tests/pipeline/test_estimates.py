"""Means over seeds on Spark."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from endive.pipeline.estimates import over_seeds
from endive.pipeline.run_rows import RUN_SCHEMA
from endive.sim.results.summary import estimate


def run_row(seed: int, status: str = "done", **metrics: float) -> dict[str, Any]:
    return {"family": "f", "experiment": "e", "seed": seed, "status": status, **metrics}


def estimated(rows: list[dict[str, Any]], spark: SparkSession) -> dict[str, Any]:
    schema = RUN_SCHEMA.append(pa.field("family", pa.string()))
    nullable = pa.schema([pa.field(field.name, field.type) for field in schema])
    (found,) = over_seeds(spark.createDataFrame(pa.Table.from_pylist(rows, schema=nullable))).toArrow().to_pylist()
    return dict(found)


@pytest.mark.parametrize("seeds", [2, 5, 30])
def test_means_have_the_interval_of_student(seeds: int, spark: SparkSession) -> None:
    values = [float(value) for value in np.random.default_rng(7).normal(100, 10, seeds)]

    found = estimated([run_row(seed, offered_per_s=value) for seed, value in enumerate(values)], spark)

    expected = estimate(values)
    assert found["offered_per_s"] == pytest.approx(expected.mean, rel=1e-12)
    assert found["offered_per_s_ci"] == pytest.approx(expected.half_width, rel=1e-12)


def test_one_seed_has_no_interval(spark: SparkSession) -> None:
    found = estimated([run_row(1, success=0.75)], spark)

    assert (found["success"], found["success_ci"], found["seeds_done"], found["seeds_failed"]) == (0.75, None, 1, 0)


def test_a_metric_that_some_seeds_lack_is_the_mean_of_the_others(spark: SparkSession) -> None:
    rows = [run_row(1, all_p50_ms=1.0), run_row(2, all_p50_ms=2.0), run_row(3), run_row(4, "failed")]

    found = estimated(rows, spark)

    assert (found["seeds_done"], found["seeds_failed"]) == (3, 1)
    assert found["all_p50_ms"] == 1.5
    assert found["all_p50_ms_ci"] == pytest.approx(12.706 * np.std([1, 2], ddof=1) / 2**0.5)
    assert (found["success"], found["success_ci"]) == (None, None)
