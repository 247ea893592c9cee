"""The experiments of `endive run` as one sweep, and the counters of sweeps."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from endive.cli.app import app
from endive.errors import ResultError
from endive.pipeline.consolidate import consolidate
from endive.pipeline.counters import counters_table
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.experiments import consolidate_experiments
from endive.pipeline.opening import open_results
from endive.pipeline.plan import Plan
from endive.pipeline.results import SweepResults
from endive.pipeline.run_rows import RUN_SCHEMA, with_later_columns
from endive.pipeline.sweep_file import parse_group
from endive.pipeline.task import SweepJob, run_bin
from endive.sim.config.configuration import parse_configuration
from endive.sim.results.experiment import Experiment

APPENDS = """
simulation = { duration_ms = 20_000, trim_start_ms = 0, trim_end_ms = 0 }
storage.provider = "s3x"
catalog = { type = "append", num_tables = 2 }
[transaction]
inter_arrival.scale = {scale}
runtime.value = 100
manifest_list_mode = "append"
"""


def experiments_in(root: Path) -> None:
    for scale in (100, 400):
        settings = parse_configuration(APPENDS.replace("{scale}", str(scale)), f"appends{scale}.toml")
        for seed in (1, 2):
            Experiment(settings, root).run(seed)


def test_every_transaction_of_all_experiments_is_in_one_file(tmp_path: Path) -> None:
    experiments_in(tmp_path)
    consolidate_experiments(tmp_path)
    rows = pq.read_table(tmp_path / "consolidated.parquet")
    found = {(row["experiment"], row["seed"]) for row in rows.select(["experiment", "seed"]).to_pylist()}
    parts = list(tmp_path.glob("*/*/results.parquet"))
    assert found == {(path.parent.parent.name, int(path.parent.name)) for path in parts}
    assert len(rows) == sum(pq.read_metadata(path).num_rows for path in parts)


def test_the_experiments_have_a_report_and_curves_by_the_key_that_differs(tmp_path: Path) -> None:
    experiments_in(tmp_path)
    results = open_results(tmp_path)
    means = results.measures("experiments").to_pylist()
    assert sorted(row["load"] for row in means) == [2.5, 10.0]
    assert {row["seeds_done"] for row in means} == {2}
    page = tmp_path / "report.html"
    reported = CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    assert reported.exit_code == 0
    assert page.stat().st_size > 10_000


def test_a_directory_without_finished_runs_is_refused(tmp_path: Path) -> None:
    settings = parse_configuration(APPENDS.replace("{scale}", "100"), "appends.toml")
    Experiment(settings, tmp_path).prepare(1)
    with pytest.raises(ResultError, match="no finished run"):
        consolidate_experiments(tmp_path)


SWEEP = """
seeds = "1..2"
grid = { transaction.inter_arrival.scale = [50, 400] }
[configuration]
simulation = { duration_ms = 20_000, trim_start_ms = 0, trim_end_ms = 0 }
storage.provider = "s3x"
catalog = { type = "append", num_tables = 2 }
transaction = { runtime = { value = 100 }, manifest_list_mode = "append" }
"""


def test_counters_of_the_append_design_are_measures_of_a_sweep() -> None:
    plan, directory = Plan((parse_group(SWEEP, "appends.toml"),)), SweepDirectory("memory://counters")
    directory.prepare(plan)
    texts = {name: (settings.text, settings.source) for name, settings in plan.settings.items()}
    bins = dict(enumerate(plan.bins(plan.runs, cores=1)))
    job = SweepJob(directory, plan.keep, texts, bins, "start")
    for number in bins:
        assert run_bin(job, number, 0).error is None
    consolidate(directory, None)

    rows = SweepResults(directory).measures("counters").to_pylist()

    names = {row["counter"] for row in rows}
    assert {"append_physical_success", "append_logical_success", "append_physical_failure"} <= names
    assert {"manifest_append_physical_success", "false_conflicts"} <= names
    landed = {row["load"]: row["mean"] for row in rows if row["counter"] == "append_physical_success"}
    assert landed[20.0] > landed[2.5] > 0
    assert all(row["seeds"] == 2 and row["mean_ci"] is not None for row in rows)


def test_rows_of_older_sweeps_have_no_counters() -> None:
    empty = RUN_SCHEMA.empty_table()
    old = empty.drop_columns(["counters"])
    assert with_later_columns(old).schema.equals(RUN_SCHEMA)
    assert len(counters_table(empty, ["experiment"])) == 0
