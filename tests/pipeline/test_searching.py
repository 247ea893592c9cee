"""Searches on Spark give the answers of one machine; capacities are read back from sweeps that have run."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import endive as package
from endive.errors import SparkUnavailableError
from endive.pipeline.searching import on_spark
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan
from tests.surfaces.conftest import endive  # noqa: F401 - a fixture
from tests.surfaces.files import SMALL, CommandLine

VARY = {"catalog.num_tables": [1, 3]}


def test_searches_on_spark_give_the_answers_of_one_machine(spark: SparkSession) -> None:
    here = package.capacity(SMALL, 0.9, vary=VARY, seeds="1..3", tolerance=0.05)
    there = package.capacity(SMALL, 0.9, vary=VARY, seeds="1..3", tolerance=0.05, spread=on_spark(spark))

    assert len(here.answers) == 2
    assert there.document() == here.document()
    assert there.answers == here.answers


def test_a_search_that_fails_on_spark_is_one_message(spark: SparkSession) -> None:
    class Failing:
        def run(self) -> None:
            raise RuntimeError("a defect")

    with pytest.raises(SparkUnavailableError, match="Spark gave up"):
        list(on_spark(spark)([Failing()]))  # type: ignore[list-item]


def test_capacities_are_read_from_a_sweep_without_spark(endive: CommandLine) -> None:  # noqa: F811 - the fixture
    leave_runs(endive.directory / "small", small_plan())

    shown = endive("capacity", "--from", "small")
    exact = endive("capacity", "--from", "small", "--success", "1.0", "--json")

    assert shown.code == 0, shown.err
    assert "Small" in shown.out
    assert "3 tables" in shown.out
    ((group,), strict) = json.loads(exact.out), exact.code
    assert strict == 0
    loads = [row["usable_load"] for row in group["series"]]
    assert all(load is None or load <= 1000 / 150 for load in loads)


@pytest.mark.parametrize("arguments", [(), ("small.toml", "--from", "small")])
def test_a_search_needs_a_file_or_a_sweep(endive: CommandLine, arguments: tuple[str, ...]) -> None:  # noqa: F811
    outcome = endive("capacity", *arguments)

    assert outcome.code == 2
    assert "give a configuration FILE, or --from" in outcome.err


def test_the_results_of_a_sweep_are_the_same_for_its_own_target(tmp_path: Path) -> None:
    from endive.pipeline.opening import open_results

    leave_runs(tmp_path / "small", small_plan())
    results = open_results(tmp_path / "small")

    assert results.groups_at(0.95) == results.groups
    assert results.groups_at(0.5) != results.groups
