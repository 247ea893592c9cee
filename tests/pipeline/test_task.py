"""The task of a bin, without Spark: rows, failures, crashes, and results that cannot be written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from endive.errors import ResultError
from endive.pipeline import task
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.execute import sweep_job
from endive.pipeline.plan import Bin, Plan, Run
from endive.pipeline.run_rows import done_row
from endive.pipeline.task import SweepJob, run_bin
from tests.pipeline.sweeps import rows_of, small_plan


def job_of(path: Path, plan: Plan) -> SweepJob:
    directory = SweepDirectory(path)
    directory.prepare(plan)
    return sweep_job(plan, directory, [Bin(plan.runs[:3], 1.0)])


def test_a_bin_is_one_file_and_a_repetition_changes_nothing(tmp_path: Path) -> None:
    job = job_of(tmp_path, small_plan())

    first, second = run_bin(job, 0, attempt=1), run_bin(job, 0, attempt=2)

    assert (first.statuses, second.statuses, first.error) == ({"done": 3}, {"done": 3}, None)
    assert len(rows_of(tmp_path)) == 3
    assert job.directory.list(".running/") == ()


def test_a_result_that_cannot_be_written_is_an_error_of_the_sweep_and_no_failed_run(tmp_path: Path) -> None:
    plan = small_plan(keep="transactions")
    job = job_of(tmp_path, plan)
    (tmp_path / "transactions").touch()  # where a directory should be

    report = run_bin(job, 0, attempt=1)

    assert report.statuses == {}
    assert isinstance(report.error, ResultError)
    assert str(report.error).startswith(str(tmp_path / "transactions"))
    assert job.directory.list("runs/") == ()  # so the next start does the runs again
    assert SweepDirectory(tmp_path).done(plan) == set()


def test_an_error_of_a_run_is_recorded_in_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("no room")

    job = job_of(tmp_path, small_plan())
    monkeypatch.setattr(task, "_simulate", fail)

    report = run_bin(job, 0, attempt=1)

    assert (report.statuses, report.error) == ({"failed": 3}, None)
    assert {row["message"] for row in rows_of(tmp_path)} == {"MemoryError: no room"}


def test_a_bin_that_costs_too_much_gives_runs_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan()
    job = job_of(tmp_path, plan)
    monkeypatch.setattr(task, "TASK_SECONDS_MAX", 0.0)

    first = run_bin(job, 0, attempt=0)
    monkeypatch.undo()
    second = run_bin(job, 0, attempt=1)

    assert (first.statuses, first.left) == ({"done": 1}, plan.runs[1:3])
    assert (second.statuses, second.left) == (first.statuses, first.left)  # its rows are those of the first attempt
    assert first.cpu_s > 0.0
    assert len(rows_of(tmp_path)) == 1


def test_the_rows_of_the_faster_attempt_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan()
    job = job_of(tmp_path, plan)
    simulate = task._simulate

    def overtaken(job: SweepJob, run: Run) -> Any:
        """While an attempt simulates, another one with fewer runs ends."""
        summary = simulate(job, run)
        rows = [done_row(*plan.runs[0], summary[0], 0.5)]
        job.directory.create_part(job.part(0), rows)
        return summary

    monkeypatch.setattr(task, "_simulate", overtaken)
    report = run_bin(job, 0, attempt=0)

    assert (report.statuses, report.left) == ({"done": 1}, plan.runs[1:3])
    assert report.cpu_s == 0.5


def test_a_run_that_left_two_markers_is_recorded_as_crashed(tmp_path: Path) -> None:
    plan = small_plan()
    job = job_of(tmp_path, plan)
    experiment, seed = plan.runs[1]
    for attempt in (1, 2):
        job.directory.create(f"{job.markers}/{experiment}-{seed}.{attempt}", b"")

    assert run_bin(job, 0, attempt=3).statuses == {"done": 2, "crashed": 1}


def test_a_directory_that_another_machine_does_not_see_is_reported(tmp_path: Path) -> None:
    job = job_of(tmp_path / "here", small_plan())
    (tmp_path / "here").rename(tmp_path / "elsewhere")

    assert "does not exist on" in str(run_bin(job, 0, attempt=1).error)


def test_a_machine_with_another_version_does_no_run(tmp_path: Path) -> None:
    job = replace(job_of(tmp_path, small_plan()), model="endive 9.9.9, model 99")

    report = run_bin(job, 0, attempt=0)

    assert (report.statuses, job.directory.parts()) == ({}, [])
    assert "the sweep needs endive 9.9.9, model 99; install the same version on every machine" in str(report.error)
