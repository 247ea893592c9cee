"""Sweeps in catalog tables: published bin by bin, once each, and fetched again for the report."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from endive.errors import ResultError
from endive.pipeline.catalog_tables import Publication, fetch, read_runs, sweeps_in
from endive.pipeline.consolidate import consolidate
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.saved_sweep import SavedSweep
from endive.pipeline.transactions import read_transactions
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
    assert len(read_runs(lake.url, "small")) == len(small_plan().runs)


def test_a_fetched_sweep_equals_the_published_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    directory = leave_runs(tmp_path / "small", small_plan())
    published(lake, directory)

    fetched = fetch(lake.url, "small", SweepDirectory(tmp_path / "fetched"))

    assert fetched.plan.equals(SavedSweep(directory).plan)
    assert fetched.about == SavedSweep(directory).about
    rows = [rows for _, rows in directory.read_parts(directory.parts())]
    assert sorted_runs(read_runs(lake.url, "small")) == sorted(
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

    assert len(fetch(lake.url, "small", SweepDirectory(tmp_path / "fetched")).plan) == 6


def test_a_catalog_without_the_sweep_is_reported(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create()
    with pytest.raises(ResultError, match="holds no sweeps"):
        sweeps_in(lake.url)

    published(lake, leave_runs(tmp_path / "small", small_plan(tables="[1]", scales="[2000]")))
    assert sweeps_in(lake.url) == ["small"]
    with pytest.raises(ResultError, match="has no sweep 'large'; there are: small"):
        fetch(lake.url, "large", SweepDirectory(tmp_path / "fetched"))


def test_measures_of_a_fetched_sweep_are_those_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    directory = leave_runs(tmp_path / "small", small_plan())
    published(lake, directory)
    fetch(lake.url, "small", SweepDirectory(tmp_path / "fetched"))
    for place in (directory, SweepDirectory(tmp_path / "fetched")):
        consolidate(place, spark)

    for name in ("runs", "experiments", "curves"):
        ours, theirs = (
            pq.read_table(path / "measures" / f"{name}.parquet") for path in (tmp_path / "small", tmp_path / "fetched")
        )
        assert ours.equals(theirs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket.*:ResourceWarning")  # PySpark's
def test_the_commands_from_sweep_to_report(endive: CommandLine) -> None:  # noqa: F811 - the fixture
    endive.write("few.toml", sweep_text(tables="[1]"))
    url = (endive.directory / "lake").as_uri()

    swept = endive("sweep", "few.toml", "--into", url, "--no-report", "--master", "local[2]")
    assert swept.code == 0, swept.err
    assert "sweep.runs" in swept.err
    shown = endive("report", url)

    assert shown.code == 0, shown.err
    assert (endive.directory / "few.html").stat().st_size > 100_000
    assert len(read_runs(url, "few")) == 9
