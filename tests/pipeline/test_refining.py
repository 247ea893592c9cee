"""Refined sweeps: offered loads are added between the sustainable load and the next, for every series at once."""

import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from endive.errors import ConfigurationError
from endive.pipeline import SweepProgress, run_sweep
from endive.pipeline.plan import Plan
from endive.pipeline.refining import refined
from endive.pipeline.sweep_file import offered_load, parse_group
from endive.sim.results.prices import NAME as DOLLARS
from tests.pipeline.sweeps import small_plan, sweep_text

LOAD = "transaction.inter_arrival.scale"


def measured(plan: Plan, holds_up_to: dict[int, float]) -> pa.Table:
    """Measures in which a number of tables reaches the target up to a load."""
    rows = []
    for group, one in plan.experiments:
        load = offered_load(one.settings, group.load_key)[0]
        success = 1.0 if load <= holds_up_to[one.parameters["catalog.num_tables"]] else 0.5
        metrics = {"offered_per_s": load, "committed_per_s": load * success, "success": success}
        means = {**metrics, "all_p99_ms": 1.0, "overhead": 0.1, "seeds_done": 3, "load": load, DOLLARS: 9.0}
        rows.append({"family": group.name, "experiment": plan.name_of(one), **means})
    return pa.Table.from_pylist(rows)


def loads(plan: Plan, tables: int) -> list[float]:
    chosen = [one for _, one in plan.experiments if one.parameters["catalog.num_tables"] == tables]
    return sorted(offered_load(one.settings)[0] for one in chosen)


def test_each_series_gets_the_load_between_its_bounds() -> None:
    plan = small_plan(tables="[1, 3]", scales="[1000, 500, 125]")

    larger = refined(plan, measured(plan, {1: 1.0, 3: 2.0}))

    assert larger is not None
    assert loads(larger, 1) == pytest.approx([1.0, 2.0**0.5, 2.0, 8.0], rel=1e-3)
    assert loads(larger, 3) == pytest.approx([1.0, 2.0, 4.0, 8.0], rel=1e-3)
    assert set(plan.runs) < set(larger.runs)
    assert larger.groups[0].varied == plan.groups[0].varied


def test_rounds_close_in_on_the_sustainable_load_and_end() -> None:
    plan: Plan | None = small_plan(tables="[1]", scales="[1000, 250]")
    rounds = 0
    while plan is not None:
        last, plan, rounds = plan, refined(plan, measured(plan, {1: 2.6})), rounds + 1

    bounds = loads(last, 1)
    holds = max(load for load in bounds if load <= 2.6)
    assert min(load for load in bounds if load > 2.6) / holds < 1.05
    assert rounds < 10


@pytest.mark.parametrize("holds", [0.1, 100.0])
def test_a_series_without_bounds_is_left_as_it_is(holds: float) -> None:
    plan = small_plan(tables="[1]")

    assert refined(plan, measured(plan, {1: holds})) is None


def test_writers_are_whole_numbers() -> None:
    text = sweep_text(tables="[1]", scales="[1]").replace("inter_arrival = {", "# {")
    text = text.replace(
        "[configuration.transaction]", '[configuration.transaction]\narrivals = "closed"\ninterval_ms = 10'
    )
    text = text.replace(f'"{LOAD}" = [1]', '"transaction.writers" = [1, 2, 16]')
    plan = Plan((parse_group(text, "closed.toml"),))

    larger = refined(plan, measured(plan, {1: 2.0}))

    assert larger is not None
    assert loads(larger, 1) == [1.0, 2.0, 6.0, 16.0]
    assert refined(plan, measured(plan, {1: 1.0})) is None  # there is no number between 1 and 2


def test_a_sweep_without_an_offered_load_cannot_be_refined() -> None:
    text = sweep_text().replace(f'"{LOAD}" = [2000, 400, 150]', "")

    with pytest.raises(ConfigurationError, match="no sweep file varies the offered load"):
        refined(Plan((parse_group(text, "one.toml"),)), pa.table({}))


@pytest.mark.slow
def test_a_refined_sweep_bounds_the_sustainable_load_more_closely(spark: SparkSession, tmp_path: Path) -> None:
    content = tomllib.loads(sweep_text(tables="[1, 3]", scales="[2000, 100]"))
    said = list[SweepProgress]()

    results = run_sweep(content, tmp_path / "out", master="local[2]", refine=2, progress=said.append)

    assert spark is not None
    for row in results.measures().to_pylist():
        assert row["fails_from_load"] / row["usable_load"] < 20**0.3  # 20 before, and its fourth root now
    assert len(results.measures("experiments")) == 8
    assert "round 1 of 2: 2 offered loads more" in [one.message for one in said]
