"""The directory of a sweep on any object store: what is created once, errors as one message, and two sweeps in one."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from endive.drivers.directory import Directory
from endive.errors import ConfigurationError, OutcomeUnknownError, ResultError, StorageAccessError
from endive.objects import MemoryStore, ObjectStore
from endive.pipeline.cleaning import clean
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.execute import sweep_job
from endive.pipeline.plan import Bin, Plan
from endive.pipeline.run_rows import not_done_row
from endive.pipeline.saved_sweep import SavedSweep
from endive.pipeline.task import SweepJob, run_bin
from endive.protocol.requests import ObjectInfo
from endive.testing.fault_injection import FaultInjectingStore, FaultProbabilities
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import expected_rows, small_plan


def present(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def on(objects: ObjectStore) -> SweepDirectory:
    """A directory on a bucket that is in memory."""
    directory = SweepDirectory("s3://bucket/sweeps/x/")
    directory.__dict__["objects"] = objects
    return directory


def job_of(directory: SweepDirectory, plan: Plan, runs: int = 3) -> SweepJob:
    directory.prepare(plan)
    return sweep_job(plan, directory, [Bin(plan.runs[:runs], 1.0)])


def test_a_directory_is_a_path_or_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert str(Directory("sweeps/x")) == str(tmp_path / "sweeps" / "x")
    assert Directory(f"file://{tmp_path}/a%20b").local == tmp_path / "a b"
    assert Directory("odd:name").local == tmp_path / "odd:name"
    far = Directory("s3://bucket/a/b/", "http://127.0.0.1:1")
    assert (str(far), far.name, far.local, far.place("c")) == ("s3://bucket/a/b", "b", None, "s3://bucket/a/b/c")
    assert pickle.loads(pickle.dumps(far)) == far  # noqa: S301 - our own
    for url in ("htp://x", "memory://"):
        with pytest.raises(ConfigurationError, match="not a directory"):
            Directory(url)


def test_the_first_to_create_a_file_decides_its_content() -> None:
    directory = on(MemoryStore())

    assert directory.create("a", b"first")
    assert not directory.create("a", b"second")
    assert directory.read("a") == b"first"


@pytest.mark.parametrize("seed", range(5))
def test_an_object_store_that_refuses_and_loses_replies_changes_no_result(seed: int) -> None:
    faults = FaultProbabilities(refusal=0.1, failure=0.1, lost_reply=0.1)
    directory = on(FaultInjectingStore(MemoryStore(), seed, faults))
    directory.__dict__["_driver"] = directory._driver
    directory._driver._sleep = lambda _: None
    plan = small_plan(tables="[1]", scales="[2000]")
    job = job_of(directory, plan)

    reports = [run_bin(job, 0, attempt) for attempt in (0, 1)]

    assert [(report.statuses, report.error) for report in reports] == [({"done": 3}, None)] * 2
    ((name, rows),) = directory.read_parts(directory.parts())
    assert name == job.part(0)
    found = sorted(rows.drop_columns(["cpu_s"]).to_pylist(), key=lambda row: (row["experiment"], row["seed"]))
    assert present(found) == present(expected_rows(plan))


def test_the_first_attempt_of_a_bin_takes_one_write_and_no_listing() -> None:
    objects = MemoryStore()
    job = job_of(on(objects), small_plan())
    run_bin(job, 0, attempt=0)  # the first in a process also looks at the directory
    job = job_of(job.directory, small_plan())
    counted = job.directory._driver.requests.by_kind
    counted.clear()

    run_bin(job, 0, attempt=0)

    assert counted == {"PutIfAbsent": 1}


DENIED = {
    "ExpiredToken: 400 Bad Request": "renew the credentials",
    "NoSuchBucket: 404 Not Found": "create the bucket, or correct the URL",
    "PermanentRedirect: 301": "set the region to that of the bucket",
    "QuotaExceeded: 507 Insufficient Storage": "free some space or choose another --out",
    "AccessDenied: 403 Forbidden": "check that the bucket exists and the permissions of the credentials",
    "No space left on device": "free some space or choose another --out",
    "Permission denied": "choose another --out",
    "Input/output error": "remove the cause, then repeat the command",
}


@pytest.mark.parametrize(("problem", "remedy"), DENIED.items())
def test_a_write_that_is_denied_ends_the_sweep_with_one_message(
    problem: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = MemoryStore()
    job = job_of(on(objects), small_plan())

    def deny(path: str, body: bytes) -> bool:
        raise StorageAccessError(f"s3://bucket/sweeps/x/{path}", problem)

    monkeypatch.setattr(objects, "put_if_absent", deny)
    report = run_bin(job, 0, attempt=0)

    assert report.statuses == {}
    assert str(report.error).startswith(f"s3://bucket/sweeps/x/{job.part(0)}: cannot be written ({problem}); {remedy}")
    assert job.directory.list("runs/") == ()


def test_a_write_whose_outcome_stays_unknown_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = MemoryStore()
    job = job_of(on(objects), small_plan())

    def lose(path: str, body: bytes) -> bool:
        raise OutcomeUnknownError(path)

    monkeypatch.setattr(objects, "put_if_absent", lose)

    assert "whether it was written is not known; repeat the command" in str(run_bin(job, 0, attempt=0).error)


def test_two_sweeps_in_one_directory_keep_their_plans_apart(tmp_path: Path) -> None:
    first, second = small_plan(tables="[1]"), small_plan(tables="[3]")
    directory = SweepDirectory(tmp_path)
    before = directory.prepare(first)
    now = directory.prepare(second)

    assert len({before, now}) == 2
    assert SavedSweep(directory, now).plan["catalog.num_tables"].unique().to_pylist() == [3]
    with pytest.raises(ResultError, match=r"another sweep .* its runs are kept: repeat this command"):
        _ = SavedSweep(directory, before).about
    assert directory.prepare(first) == before  # repeating the first command shows its plan again
    assert SavedSweep(directory, before).plan["catalog.num_tables"].unique().to_pylist() == [1]


def test_a_second_sweep_with_the_same_plan_changes_nothing(tmp_path: Path) -> None:
    directory = SweepDirectory(tmp_path)
    directory.prepare(small_plan())
    about = json.loads(directory.read("about.json") or b"")
    directory.write("about.json", json.dumps({**about, "created": "2026-01-01T00:00:00+00:00"}).encode())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    directory.prepare(small_plan())

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_runs_are_done_if_a_row_says_so_and_the_plan_asks_for_them(tmp_path: Path) -> None:
    plan, other = small_plan(tables="[1]", scales="[2000]"), small_plan(tables="[3]", scales="[2000]")
    directory = leave_runs(tmp_path, other)
    leave_runs(tmp_path, plan, plan.runs[:1], start="second")
    bad = [not_done_row(*run, status, "no") for run, status in zip(plan.runs[1:], ("failed", "crashed"), strict=True)]
    directory.create_part(directory.part("third", 0), bad)

    assert directory.done(plan) == {plan.runs[0]}


def test_runs_without_their_transactions_are_not_done(tmp_path: Path) -> None:
    plan = small_plan(keep="transactions", tables="[1]", scales="[2000]")
    directory = leave_runs(tmp_path, plan)
    directory.delete(directory.transactions(*plan.runs[1]))

    assert directory.done(plan) == {plan.runs[0], plan.runs[2]}


def test_a_part_that_is_foreign_or_gone_is_named_with_the_remedy(tmp_path: Path) -> None:
    directory = SweepDirectory(tmp_path)
    directory.create_table("runs/part-foreign.parquet", pa.table({"experiment": ["a"], "seed": [1]}))

    with pytest.raises(ResultError, match=r"part-foreign.parquet: does not hold the rows of runs; delete it"):
        list(directory.read_parts(directory.parts()))
    with pytest.raises(ResultError, match=r"part-gone.parquet: has disappeared; repeat the sweep"):
        list(directory.read_parts(["runs/part-gone.parquet"]))


def test_cleaning_removes_what_no_result_needs_and_nothing_else(tmp_path: Path) -> None:
    plan = small_plan(keep="transactions", tables="[1]", scales="[2000]")
    directory = leave_runs(tmp_path, small_plan(tables="[3]", scales="[2000]"))
    older = {info.path for info in directory.list("experiments-")}
    directory.prepare(plan)
    needed = {info.path for info in leave_runs(tmp_path, plan, plan.runs[:2], start="second").list("")} - older
    leftovers = {
        ".running/abc/e-1.2": b"",
        directory.transactions(*plan.runs[2]): b"of a task that was killed",
        "measures/transactions/part-abc-00000.parquet": b"of a data set that was never complete",
    }
    for path, body in leftovers.items():
        directory.create(path, body)
    (tmp_path / "runs" / ".tmp-1-2-3").touch()

    assert set(clean(directory)) == older | leftovers.keys() | {"runs/.tmp-1-2-3"}

    assert {info.path for info in directory.list("")} == needed
    assert clean(directory) == []


def test_cleaning_keeps_the_transactions_of_parts_that_a_listing_does_not_show_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects, plan = MemoryStore(), small_plan(keep="transactions", tables="[1]", scales="[2000]")
    directory = leave_runs(on(objects), plan, parts=1)
    (rows,) = (rows for _, rows in directory.read_parts(directory.parts()))
    directory.write_table("measures/runs.parquet", rows)
    orphan = directory.transactions(plan.runs[0][0], 99)
    directory.create(orphan, b"of a killed task")
    listed = objects.list

    def lagging(prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        return tuple(info for info in listed(prefix, after) if "/part-" not in info.path)

    monkeypatch.setattr(objects, "list", lagging)

    assert clean(directory) == [orphan]
    assert all(directory.read(directory.transactions(*run)) for run in plan.runs)
