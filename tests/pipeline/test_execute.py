"""Sweeps on Spark: every run exactly once, whatever happens to it."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from endive.errors import ResultError
from endive.pipeline import execute as execution
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.execute import Finished, RunProgress, execute
from endive.pipeline.plan import Plan, Run
from endive.pipeline.task import SweepJob, TaskReport, run_bin
from endive.sim.engines import simulate
from tests.pipeline.sweeps import expected_rows, rows_of, small_plan

pytestmark = pytest.mark.slow


def present(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that say nothing."""
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def executed(
    plan: Plan, path: Path, spark: SparkSession, progress: RunProgress | None = None
) -> tuple[int, dict[str, int]]:
    """Prepare a directory and do the remaining runs; return how many were done before, and the others' statuses."""
    directory = SweepDirectory(path)
    directory.prepare(plan)
    done = directory.done(plan)
    return len(done), dict(execute(plan, directory, done, spark, progress).statuses)


def with_event(victim: Run, event: Callable[[], None]) -> Callable[[SweepJob, int, int], TaskReport]:
    """A task in whose process `event` is called when the victim's turn comes."""

    def do(job: SweepJob, number: int, attempt: int) -> TaskReport:
        from endive.pipeline import task  # in the worker's process

        original = task._simulate

        def simulate_or_not(job: SweepJob, run: Run) -> Any:
            if run == victim:
                event()
            return original(job, run)

        task._simulate = simulate_or_not
        try:
            return task.run_bin(job, number, attempt)
        finally:
            task._simulate = original

    return do


def test_every_run_gives_the_row_that_it_gives_alone(spark: SparkSession, tmp_path: Path) -> None:
    plan = small_plan()
    reported: list[tuple[int, float]] = []

    found, statuses = executed(
        plan, tmp_path, spark, lambda finished: reported.append((finished.runs, finished.seconds))
    )

    assert (found, statuses) == (0, {"done": 18})
    assert present(rows_of(tmp_path)) == present(expected_rows(plan))
    assert reported[-1][0] == 18
    assert reported[-1][1] == pytest.approx(plan.cost(plan.runs))
    assert not list(tmp_path.glob("**/*.part"))


def test_runs_that_tasks_give_back_are_done_in_another_round(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(job: SweepJob, number: int, attempt: int) -> TaskReport:
        from endive.pipeline import task  # in the worker's process

        before, task.TASK_SECONDS_MAX = task.TASK_SECONDS_MAX, 0.0
        try:
            return run_bin(job, number, attempt)
        finally:
            task.TASK_SECONDS_MAX = before

    monkeypatch.setattr(execution, "run_bin", impatient)
    plan, reported = small_plan(), list[Finished]()

    assert executed(plan, tmp_path, spark, reported.append) == (0, {"done": 18})

    assert present(rows_of(tmp_path)) == present(expected_rows(plan))
    starts = {path.name.split("-")[1] for path in tmp_path.glob("runs/part-*")}
    assert len(starts) > 1  # one for each round
    assert len({path.name.split("-")[2] for path in tmp_path.glob("runs/part-*")}) == len(reported[-1].parts)
    assert reported[-1].runs == 18
    assert reported[-1].seconds == pytest.approx(plan.cost(plan.runs))
    assert [one.runs for one in reported] == sorted(one.runs for one in reported)


def test_done_runs_are_not_repeated(spark: SparkSession, tmp_path: Path) -> None:
    plan = small_plan()
    executed(plan, tmp_path, spark)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*")}

    assert executed(plan, tmp_path, spark) == (18, {})

    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*")} == before


def test_a_larger_or_changed_sweep_runs_only_new_experiments(spark: SparkSession, tmp_path: Path) -> None:
    executed(small_plan(), tmp_path, spark)

    larger = small_plan(tables="[1, 3, 5]")
    assert executed(larger, tmp_path, spark) == (18, {"done": 9})
    assert present(rows_of(tmp_path)) == present(expected_rows(larger))

    changed = small_plan(scales="[2000, 401, 150]")
    assert executed(changed, tmp_path, spark) == (12, {"done": 6})


def test_a_lost_part_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    plan = small_plan()
    executed(plan, tmp_path, spark)
    next(tmp_path.glob("runs/part-*")).unlink()

    found, statuses = executed(plan, tmp_path, spark)

    assert found + statuses["done"] == 18
    assert present(rows_of(tmp_path)) == present(expected_rows(plan))


def test_transactions_are_kept_if_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    executed(small_plan(), tmp_path, spark)
    plan = small_plan(keep="transactions")

    assert executed(plan, tmp_path, spark) == (0, {"done": 18})

    for experiment, seed in plan.runs:
        table = pq.read_table(tmp_path / "transactions" / experiment / f"{seed}.parquet")
        assert table.equals(simulate(plan.settings[experiment], seed).table)
    assert executed(plan, tmp_path, spark) == (18, {})


def test_a_failing_run_is_recorded_and_does_not_stop_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan()
    victim = plan.runs[4]

    def fail() -> None:
        raise MemoryError("no room for 9 million transactions")

    monkeypatch.setattr(execution, "run_bin", with_event(victim, fail))

    assert executed(plan, tmp_path, spark) == (0, {"done": 17, "failed": 1})
    (bad,) = [row for row in rows_of(tmp_path) if row["status"] != "done"]
    assert (bad["experiment"], bad["seed"]) == victim
    assert bad["message"] == "MemoryError: no room for 9 million transactions"

    monkeypatch.undo()
    assert executed(plan, tmp_path, spark) == (17, {"done": 1})


def test_a_run_that_ends_its_process_is_left_out_after_three_tries(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan()
    victim = plan.runs[7]
    tries = tmp_path / "tries"

    def end() -> None:
        with tries.open("ab") as file:
            file.write(b"x")
        os._exit(3)

    monkeypatch.setattr(execution, "run_bin", with_event(victim, end))

    executed(plan, tmp_path, spark)

    assert tries.read_bytes() == b"xxx"  # the first attempt leaves no marker
    rows = {(row["experiment"], row["seed"]): row for row in rows_of(tmp_path)}
    assert rows.keys() == set(plan.runs)
    assert rows[victim]["status"] == "crashed"
    assert "its process ended at least 2 times" in rows[victim]["message"]
    assert {row["status"] for run, row in rows.items() if run != victim} == {"done"}


def test_a_killed_task_is_repeated_and_its_rows_are_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, once = small_plan(), tmp_path / "killed once"

    def kill_once() -> None:
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(execution, "run_bin", with_event(plan.runs[9], kill_once))

    executed(plan, tmp_path / "out", spark)

    assert once.exists()
    assert present(rows_of(tmp_path / "out")) == present(expected_rows(plan))


def test_a_full_disk_ends_the_sweep_with_the_files_name_and_nothing_half_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confined(job: SweepJob, number: int, attempt: int) -> TaskReport:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # no file may be longer
        try:
            return run_bin(job, number, attempt)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(execution, "run_bin", confined)

    with pytest.raises(ResultError, match=r"part-.*cannot be written .*; free some space or choose another --out"):
        executed(small_plan(), tmp_path, spark)

    assert not list(tmp_path.glob("runs/*"))


def test_a_machine_with_another_version_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = execution.sweep_job

    def of_another_version(*arguments: Any) -> SweepJob:
        job: SweepJob = original(*arguments)
        object.__setattr__(job, "model", "endive 9.9.9, model 99")
        return job

    monkeypatch.setattr(execution, "sweep_job", of_another_version)

    with pytest.raises(ResultError, match=r"the sweep needs endive 9\.9\.9.*install the same version on every machine"):
        executed(small_plan(), tmp_path, spark)


def test_a_directory_that_cannot_be_made_fails_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultError, match="cannot be written"):
        executed(small_plan(), tmp_path / "file" / "out", spark)


def test_a_damaged_part_is_named_with_the_remedy(spark: SparkSession, tmp_path: Path) -> None:
    plan: Plan = small_plan()
    executed(plan, tmp_path, spark)
    part = next(tmp_path.glob("runs/part-*"))
    part.write_bytes(part.read_bytes()[:50])

    with pytest.raises(ResultError, match=rf"{part.name}.*delete it and repeat the sweep: its runs will be repeated"):
        executed(plan, tmp_path, spark)
