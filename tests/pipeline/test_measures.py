"""Measures computed without Spark: what they are, and when they count as complete."""

from collections import Counter
from pathlib import Path

import pytest

from endive.errors import ResultError
from endive.pipeline.consolidate import consolidate, is_current
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.estimates import estimates_of
from endive.pipeline.opening import open_results
from endive.pipeline.plan import Plan
from endive.pipeline.results import series_cells
from endive.pipeline.run_rows import METRICS, not_done_row
from endive.pipeline.sweep_file import parse_group
from tests.pipeline.another_engine import differences, means_over_seeds
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan, sweep_text


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """A sweep of which one run failed first and was done later, and one failed for good."""
    plan = small_plan(tables="[1]")
    directory = leave_runs(tmp_path_factory.mktemp("swept"), plan, plan.runs[:-1])
    bad = [not_done_row(*run, "failed", "ValueError: no") for run in (plan.runs[0], plan.runs[-1])]
    directory.create_part(directory.part("earlier", 0), bad)
    consolidate(directory, None)
    return directory


def test_every_run_has_one_row_and_a_done_one_counts(swept: SweepDirectory) -> None:
    plan = small_plan(tables="[1]")
    results = open_results(swept)
    statuses = {(row["experiment"], row["seed"]): row["status"] for row in results.measures("runs").to_pylist()}

    assert statuses == dict.fromkeys(plan.runs, "done") | {plan.runs[-1]: "failed"}
    assert [(run["experiment"], run["seed"], run["message"]) for run in results.failures] == [
        (*plan.runs[-1], "ValueError: no")
    ]
    counts = {(row["seeds_done"], row["seeds_failed"]) for row in results.measures("experiments").to_pylist()}
    assert counts == {(3, 0), (2, 1)}


def test_means_and_intervals_are_those_of_another_engine(swept: SweepDirectory) -> None:
    runs = open_results(swept).measures("runs")

    expected = means_over_seeds(runs, ("family", "experiment"), METRICS)

    assert differences(estimates_of(runs), expected, ("family", "experiment")) == []


def test_a_part_that_exists_is_not_replaced(tmp_path: Path) -> None:
    directory, plan = SweepDirectory(tmp_path), small_plan()
    first, second = ([not_done_row(*plan.runs[0], "failed", text)] for text in ("first", "second"))

    assert directory.create_part("runs/part-a-000000.parquet", first)
    assert not directory.create_part("runs/part-a-000000.parquet", second)

    ((_, rows),) = directory.read_parts(directory.parts())
    assert rows["message"].to_pylist() == ["first"]


def test_measures_that_could_not_be_written_whole_are_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = leave_runs(tmp_path, small_plan(tables="[1]"))
    consolidate(directory, None)
    assert is_current(directory)
    write = SweepDirectory.write_table

    def fail_late(self: SweepDirectory, path: str, table: object) -> None:
        if "curves" in path:
            raise ResultError(path, "cannot be written", "free some space")
        write(self, path, table)

    monkeypatch.setattr(SweepDirectory, "write_table", fail_late)
    with pytest.raises(ResultError):
        consolidate(directory, None)

    assert not is_current(directory)
    assert directory.read("measures/inputs.json") is None


def test_measures_of_another_plan_are_not_current(tmp_path: Path) -> None:
    directory = leave_runs(tmp_path, small_plan(tables="[1]"))
    digest = directory.prepare(small_plan(tables="[1]"))
    consolidate(directory, None, plan=digest)

    directory.prepare(small_plan(tables="[1, 3]"))

    assert not is_current(directory)
    with pytest.raises(ResultError, match="another sweep"):
        consolidate(directory, None, plan=digest)
    assert len(open_results(directory).measures("experiments")) == 6


def test_experiments_without_runs_have_no_seeds(tmp_path: Path) -> None:
    plan = small_plan(tables="[1]")
    directory = leave_runs(tmp_path, plan, plan.runs[:3])

    counts = [row["seeds_done"] for row in open_results(directory).measures("experiments").to_pylist()]

    assert sorted(counts) == [0, 0, 3]


def test_groups_have_the_seeds_that_they_ask_for(tmp_path: Path) -> None:
    """Two groups share an experiment; the seeds of one are not those of the other."""
    few = sweep_text(tables="[1]", scales="[2000]").replace("1..3", "2..2")
    plan = Plan((parse_group(sweep_text(tables="[1]"), "all.toml"), parse_group(few, "few.toml")))

    runs = open_results(leave_runs(tmp_path, plan)).measures("runs").to_pylist()

    seeds = Counter((row["family"], row["seed"]) for row in runs)
    assert seeds == {("all", 1): 3, ("all", 2): 3, ("all", 3): 3, ("few", 2): 1}


@pytest.mark.parametrize(("usable", "fails", "shown"), [(4.0, None, "≥ 4"), (4.0, 8.0, "4"), (None, 2.0, "< 2")])
def test_a_sustainable_load_says_whether_the_sweep_bounds_it(
    usable: float | None, fails: float | None, shown: str
) -> None:
    figures = ("usable_committed_per_s", "usable_p99_ms", "usable_dollars_per_million_commits", "saturation_load")
    row = dict.fromkeys((*figures, "peak_committed_per_s"))

    assert series_cells({**row, "usable_load": usable, "fails_from_load": fails})[0] == shown
