"""Sweeps in catalog tables: published bin by bin, once each, and fetched again for the report."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from endive.errors import ResultError
from endive.pipeline import SweepResults, run_sweep, table_files
from endive.pipeline.catalog_tables import Publication, catalog_at, fetch, read_runs, sweeps_in, write_job
from endive.pipeline.cleaning import clean_tables
from endive.pipeline.consolidate import consolidate
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.execute import sweep_job
from endive.pipeline.opening import open_results
from endive.pipeline.plan import Bin, Plan
from endive.pipeline.run_rows import RUN_SCHEMA, not_done_row
from endive.pipeline.saved_sweep import SavedSweep
from endive.pipeline.sweep import SweepProgress, target_of
from endive.pipeline.table_files import Files, TableFiles, write_prefix
from endive.pipeline.task import SweepJob, run_bin
from endive.pipeline.transactions import read_transactions
from endive.sim.engines import simulate
from tests.pipeline.lakes import Lake
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan, sweep_text
from tests.surfaces.conftest import endive  # noqa: F401 - a fixture
from tests.surfaces.files import CommandLine


def published(lake: Lake, directory: SweepDirectory, **changes: str) -> None:
    plan = small_plan(**changes)
    with Publication(lake.url, "small", directory) as publication:
        publication.begin(plan.remaining(directory.done(plan)))
        publication.publish(directory.parts())


def snapshots(lake: Lake, table: str) -> int:
    with lake.table(f"sweep.{table}") as loaded:
        return len(loaded.metadata.snapshots)


def sorted_runs(table: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = table.to_pylist()  # type: ignore[attr-defined]
    return sorted(rows, key=lambda row: (str(row["experiment"]), str(row["seed"])))


def test_every_bin_is_one_commit_and_stays_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    directory = leave_runs(tmp_path / "small", small_plan(), parts=3)
    for _ in range(2):  # as after a crash: the second publication does not know of the first
        published(lake, directory)

    assert snapshots(lake, "runs") == 3
    assert snapshots(lake, "sweeps") == snapshots(lake, "experiments") == 1
    assert len(read_runs(catalog_at(lake.url), "small")) == len(small_plan().runs)


def test_a_fetched_sweep_equals_the_published_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    directory = leave_runs(tmp_path / "small", small_plan())
    published(lake, directory)

    fetched = fetch(catalog_at(lake.url), "small", SweepDirectory(tmp_path / "fetched"))

    assert fetched.plan.equals(SavedSweep(directory).plan)
    assert fetched.about == SavedSweep(directory).about
    rows = [rows for _, rows in directory.read_parts(directory.parts())]
    assert sorted_runs(read_runs(catalog_at(lake.url), "small")) == sorted(
        (row for table in rows for row in table.to_pylist()), key=lambda row: (row["experiment"], str(row["seed"]))
    )


def test_transactions_are_published_with_their_runs(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    plan = small_plan(keep="transactions", tables="[1]", scales="[2000]")
    directory = leave_runs(tmp_path / "small", plan)
    published(lake, directory, keep="transactions", tables="[1]", scales="[2000]")

    kept = {(experiment, seed): len(read_transactions(directory, (experiment, seed))) for experiment, seed in plan.runs}
    with lake.table("sweep.transactions") as table:
        rows = table.scan().to_arrow().group_by(["experiment", "seed"]).aggregate([([], "count_all")]).to_pylist()
    assert {(row["experiment"], row["seed"]): row["count_all"] for row in rows} == kept


def test_a_sweep_goes_on_from_the_catalog_where_its_directory_is_gone(tmp_path: Path) -> None:
    lake, plan = Lake(tmp_path / "lake"), small_plan()
    first = leave_runs(tmp_path / "first", plan, plan.runs[:10])
    published(lake, first)
    anew = SweepDirectory(tmp_path / "anew")
    anew.prepare(plan)

    published(lake, anew)

    assert anew.done(plan) == set(plan.runs[:10])
    assert snapshots(lake, "runs") == 2  # what came from the catalog does not go there again


def test_another_plan_of_the_same_sweep_is_the_one_that_is_fetched(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    directory = leave_runs(tmp_path / "small", small_plan(tables="[1]"))
    published(lake, directory, tables="[1]")
    about = SavedSweep(directory).about
    directory.prepare(small_plan())
    later = {**SavedSweep(directory).about, "created": about["created"] + "1"}
    directory.write("about.json", json.dumps(later).encode())
    published(lake, directory)

    assert len(fetch(catalog_at(lake.url), "small", SweepDirectory(tmp_path / "fetched")).plan) == 6


def test_a_plan_that_is_begun_again_is_the_one_that_is_fetched(tmp_path: Path) -> None:
    lake, few, many = Lake(tmp_path / "lake"), small_plan(tables="[1]"), small_plan()
    digests = [begun(lake, tmp_path / str(number), plan) for number, plan in enumerate((few, many, few))]

    def plans(number: int, **choice: str) -> int:
        return len(fetch(catalog_at(lake.url), "small", SweepDirectory(tmp_path / f"fetched {number}"), **choice).plan)

    assert digests[0] == digests[2] != digests[1]
    assert plans(0) == plans(1, plan=digests[0]) == len(few.experiments)
    assert plans(2, plan=digests[1]) == len(many.experiments)
    assert snapshots(lake, "sweeps") == 3
    assert snapshots(lake, "experiments") == 2


def begun(lake: Lake, place: Path, plan: Plan) -> str:
    """Begin a sweep in tables alone, as one start of it does; return the plan's digest."""
    directory = SweepDirectory(place)
    digest = directory.prepare(plan)
    with Publication(lake.url, "small", directory, alone=True) as publication:
        publication.begin(plan.runs)
    return digest


def test_a_catalog_without_the_sweep_is_reported(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create()
    with pytest.raises(ResultError, match="holds no sweeps"):
        sweeps_in(catalog_at(lake.url))

    published(lake, leave_runs(tmp_path / "small", small_plan(tables="[1]", scales="[2000]")))
    assert sweeps_in(catalog_at(lake.url)) == ["small"]
    with pytest.raises(ResultError, match="has no sweep 'large'; there are: small"):
        fetch(catalog_at(lake.url), "large", SweepDirectory(tmp_path / "fetched"))


def test_measures_of_a_fetched_sweep_are_those_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    directory = leave_runs(tmp_path / "small", small_plan())
    published(lake, directory)
    fetch(catalog_at(lake.url), "small", SweepDirectory(tmp_path / "fetched"))
    for place in (directory, SweepDirectory(tmp_path / "fetched")):
        consolidate(place, spark)

    for name in ("runs", "experiments", "curves"):
        ours, theirs = (
            pq.read_table(path / "measures" / f"{name}.parquet") for path in (tmp_path / "small", tmp_path / "fetched")
        )
        assert ours.equals(theirs)


def alone(lake: Lake, tmp_path: Path, plan: Plan, bins: int = 1) -> tuple[Publication, SweepJob]:
    """A sweep that lives in tables alone, ready for its tasks."""
    directory = SweepDirectory(tmp_path / "in progress")
    directory.prepare(plan)
    publication = Publication(lake.url, "small", directory, alone=True).__enter__()
    publication.begin(plan.runs)
    chosen = [Bin(plan.runs[number::bins], 1.0) for number in range(bins)]
    return publication, sweep_job(plan, directory, chosen, publication.table_files())


def test_of_two_attempts_at_a_bin_one_is_committed_and_once(tmp_path: Path) -> None:
    lake, plan = Lake(tmp_path / "lake"), small_plan(keep="transactions", tables="[1]", scales="[2000]")
    publication, job = alone(lake, tmp_path, plan)

    reports = [run_bin(job, 0, attempt) for attempt in (0, 1)]
    for report in reports:
        assert report.error is None
        publication.commit({0: report.files or {}}, is_last=True)

    assert snapshots(lake, "runs") == snapshots(lake, "transactions") == 1
    assert sorted((row["experiment"], row["seed"]) for row in rows_in(lake, "runs")) == sorted(plan.runs)
    kept = {(experiment, seed): len(simulate(plan.settings[experiment], seed).table) for experiment, seed in plan.runs}
    found = Counter((row["experiment"], row["seed"]) for row in rows_in(lake, "transactions"))
    assert found == kept
    assert job.directory.parts() == []
    assert publication.begin(plan.runs) == set(plan.runs)  # a repeated command finds all of them done


def test_bins_that_finish_later_are_added_and_earlier_ones_stay_once(tmp_path: Path) -> None:
    lake, plan = Lake(tmp_path / "lake"), small_plan(tables="[1]", scales="[2000]")
    publication, job = alone(lake, tmp_path, plan, bins=2)
    finished: dict[int, Files] = {}
    for number in job.bins:
        finished[number] = run_bin(job, number, attempt=0).files or {}
        publication.commit(finished, is_last=True)

    assert snapshots(lake, "runs") == 2
    assert sorted((row["experiment"], row["seed"]) for row in rows_in(lake, "runs")) == sorted(plan.runs)


def test_cleaning_deletes_the_files_of_lost_attempts_and_of_no_other_sweep(tmp_path: Path) -> None:
    lake, plan = Lake(tmp_path / "lake"), small_plan(tables="[1]", scales="[2000]")
    publication, job = alone(lake, tmp_path, plan)
    committed, lost = (run_bin(job, 0, attempt).files or {} for attempt in (0, 1))
    publication.commit({0: committed}, is_last=True)
    with lake.table("sweep.runs") as table:
        other = TableFiles("other", {"runs": write_job(table, write_prefix("other"))})
    row = not_done_row(*plan.runs[0], "failed", "ValueError: no")
    theirs = other.write(0, 0, {"runs": [pa.Table.from_pylist([row], schema=RUN_SCHEMA)]})

    assert clean_tables(lake.url, "small") == [file.file_path for file in lost["runs"].files]

    left = {file.file_path for files in (committed, theirs) for file in files["runs"].files}
    assert {path.as_uri() for path in lake.data_files() if "/runs-" in str(path)} == left
    assert clean_tables(lake.url, "small") == []


def rows_in(lake: Lake, table: str) -> list[dict[str, object]]:
    with lake.table(f"sweep.{table}") as loaded:
        rows: list[dict[str, object]] = loaded.scan().to_arrow().to_pylist()
        return rows


def test_files_that_cannot_be_written_end_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan(tables="[1]", scales="[2000]")
    publication, job = alone(Lake(tmp_path / "lake"), tmp_path, plan)

    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(table_files, "write_rows", fail)
    report = run_bin(job, 0, attempt=0)

    assert (report.statuses, report.files) == ({}, None)
    assert "cannot be written (No space left on device); free some space" in str(report.error)
    assert publication.begin(plan.runs) == set()


@pytest.mark.slow
def test_a_sweep_in_tables_alone_has_the_measures_of_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    lake, content = Lake(tmp_path / "lake"), tomllib.loads(sweep_text(tables="[1, 3]"))
    reports: list[str] = []

    results = run_sweep(content, catalog=lake.url, master="local[2]")
    near = run_sweep(content, tmp_path / "near", master="local[2]")
    again = run_sweep(content, catalog=lake.url, master="local[2]", progress=lambda one: reports.append(one.message))

    assert spark is not None
    for found in (results, again, open_results(lake.url)):
        for name in ("runs", "experiments", "curves"):
            assert without_cpu(found, name) == without_cpu(near, name)
    assert "18 runs are done already" in reports
    assert snapshots(lake, "runs") <= 3
    assert not list(tmp_path.glob("lake/sweeps-in-progress/**/*.*"))


@pytest.mark.slow
def test_sweeps_of_one_name_that_run_at_once_do_each_other_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    lake, other = Lake(tmp_path / "lake"), tomllib.loads(sweep_text(tables="[3]", scales="[2000]"))
    results: list[SweepResults] = []
    begins = iter(["using the running Spark session", "computing measures"])
    waits = [next(begins)]

    def start_another(report: SweepProgress) -> None:
        if report.message == waits[0]:
            waits[0] = next(begins, "")
            results.append(run_sweep(other, catalog=lake.url, master="local[2]"))

    few = tomllib.loads(sweep_text(tables="[1]"))
    results.append(run_sweep(few, catalog=lake.url, master="local[2]", progress=start_another))

    assert spark is not None
    assert [len(one.measures("experiments")) for one in results] == [1, 1, 3]
    assert not list(tmp_path.glob("lake/sweeps-in-progress/*/*"))


@pytest.mark.slow
def test_a_start_that_fails_leaves_no_folder_and_cleaning_deletes_that_of_a_killed_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, content = Lake(tmp_path / "lake"), tomllib.loads(sweep_text(tables="[1]", scales="[2000]"))

    def fail(report: SweepProgress) -> None:
        if report.message == "computing measures":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(content, catalog=lake.url, master="local[2]", progress=fail)
    assert spark is not None
    assert not list(tmp_path.glob("lake/sweeps-in-progress/*/*"))

    killed = target_of(None, "small", lake.url, None).directory
    killed.prepare(small_plan())
    clean_tables(lake.url, "small")
    assert killed.list("") == ()


def without_cpu(results: SweepResults, name: str) -> list[dict[str, object]]:
    rows = results.measures(name).to_pylist()  # type: ignore[arg-type]
    return [{key: value for key, value in row.items() if not key.startswith("cpu_s")} for row in rows]


@pytest.mark.slow
def test_the_commands_from_sweep_to_report(endive: CommandLine) -> None:  # noqa: F811 - the fixture
    endive.write("few.toml", sweep_text(tables="[1]"))
    url = (endive.directory / "lake").as_uri()

    swept = endive("sweep", "few.toml", "--into", url, "--no-report", "--master", "local[2]")
    assert swept.code == 0, swept.err
    assert "sweep.runs" in swept.err
    shown = endive("report", url)

    assert shown.code == 0, shown.err
    assert (endive.directory / "few.html").stat().st_size > 100_000
    assert len(read_runs(catalog_at(url), "few")) == 9
