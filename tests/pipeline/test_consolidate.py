"""From what runs leave behind to the measures: everything once, nothing half-written, and a clear word on bad files."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from endive.errors import ResultError, SparkUnavailableError
from endive.pipeline import consolidate as consolidation
from endive.pipeline.consolidate import consolidate, is_current
from endive.pipeline.curves import CURVE_FIELDS
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.parameters import ALWAYS
from endive.pipeline.plan import Plan
from endive.pipeline.run_rows import METRICS, RUN_SCHEMA, not_done_row
from endive.pipeline.saved_sweep import one_per_run
from endive.pipeline.sweep_file import parse_group
from endive.sim.results.columns import SCHEMA
from tests.pipeline.another_engine import differences
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan, sweep_text

LOAD = "transaction.inter_arrival.scale"
PARAMETERS = [*ALWAYS, LOAD]


def two_groups() -> Plan:
    """Two groups that share experiments, one of them with fewer seeds."""
    shared = sweep_text(tables="[1]", scales="[2000]").replace("1..3", "2..2")
    return Plan((parse_group(sweep_text(), "small.toml"), parse_group(shared, "part.toml")))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return two_groups()


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, plan: Plan, spark: SparkSession) -> Path:
    """A sweep in which one experiment failed and one was never run, consolidated."""
    path = tmp_path_factory.mktemp("sweep") / "with {odd} [names]*"
    never, failing = two_of(plan)
    directory = leave_runs(path, plan, [run for run in plan.runs if run[0] not in (never, failing)])
    failed = [not_done_row(failing, 1, "failed", "ValueError: no"), not_done_row(failing, 2, "crashed", "gone")]
    directory.create_part(directory.part("second", 0), failed)
    stranger = not_done_row("0123456789abcdef", 1, "failed", "of another sweep that was here before")
    directory.create_part(directory.part("second", 1), [stranger])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consolidation, "ROWS_HERE_MAX", 0)  # so few rows would not go through Spark SQL
        consolidate(SweepDirectory(path), spark)
    return path


def two_of(plan: Plan) -> tuple[str, str]:
    """Two experiments that only the first group has."""
    shared = {plan.name_of(one) for one in plan.groups[1].experiments}
    never, failing, *_ = (name for name in plan.settings if name not in shared)
    return never, failing


def measure(path: Path, name: str) -> pa.Table:
    return pq.read_table(path / "measures" / f"{name}.parquet")


def test_runs_have_group_parameters_and_metrics(swept: Path, plan: Plan) -> None:
    runs = measure(swept, "runs")

    assert runs.column_names == ["family", "experiment", *PARAMETERS, "load", "trust", *RUN_SCHEMA.names[1:]]
    assert sorted({(row["family"], row["seed"]) for row in runs.to_pylist()}) == [
        ("part", 2), ("small", 1), ("small", 2), ("small", 3),
    ]  # fmt: skip
    assert len(runs) == 4 * 3 + 2 + 1  # one experiment of six failed with two seeds, one was never run
    row = runs.to_pylist()[0]
    settings = plan.settings[row["experiment"]]
    assert row["load"] == pytest.approx(1000 / row[LOAD])
    assert row["catalog.num_tables"] == settings.values.catalog.num_tables


def test_experiments_are_those_of_the_plan(swept: Path, plan: Plan) -> None:
    experiments = measure(swept, "experiments")

    metrics = [column for name in METRICS for column in (name, f"{name}_ci")]
    counts = ["seeds_done", "seeds_failed"]
    assert experiments.column_names == ["family", "experiment", *PARAMETERS, "load", "trust", *counts, *metrics]
    rows = {(row["family"], row["experiment"]): row for row in experiments.to_pylist()}
    assert len(rows) == len(experiments) == 7
    never, failing = (rows["small", name] for name in two_of(plan))
    assert [(row["seeds_done"], row["seeds_failed"], row["success"]) for row in (never, failing)] == [
        (0, 0, None), (0, 2, None),
    ]  # fmt: skip
    assert rows["part", plan.name_of(plan.groups[1].experiments[0])]["seeds_done"] == 1
    assert {row["cpu_s"] for row in rows.values()} == {0.25, None}


def test_curves_are_one_per_series(swept: Path) -> None:
    curves = measure(swept, "curves")

    assert curves.column_names == [
        "family",
        *(name for name in PARAMETERS if name != LOAD),
        *(f.name for f in CURVE_FIELDS),
    ]
    recorded = [(row["family"], row["series"], row["loads"]) for row in curves.to_pylist()]
    assert sorted(recorded) == [("part", "1 table", 1), ("small", "1 table", 1), ("small", "3 tables", 3)]


def test_measures_without_spark_are_the_same(swept: Path, copy: Path) -> None:
    for name in ("runs", "experiments", "curves"):
        (copy / "measures" / f"{name}.parquet").unlink()

    consolidate(SweepDirectory(copy), None)

    for name in ("runs", "experiments", "curves"):
        assert measure(copy, name).equals(measure(swept, name)), name
    assert is_current(SweepDirectory(copy))


def test_only_the_measures_have_been_written(swept: Path) -> None:
    names = sorted(path.name for path in (swept / "measures").iterdir())

    assert names == [
        "breakdown.parquet",
        "counters.parquet",
        "curves.parquet",
        "experiments.parquet",
        "inputs.json",
        "runs.parquet",
    ]


@pytest.fixture
def copy(swept: Path, tmp_path: Path) -> Path:
    """The same directory, to be changed; the copy has the same times."""
    return Path(shutil.copytree(swept, tmp_path / "copy"))


def test_measures_are_current_until_the_runs_change(copy: Path) -> None:
    directory = SweepDirectory(copy)
    assert is_current(SweepDirectory(copy))

    directory.create_part(directory.part("third", 0), [])

    assert not is_current(SweepDirectory(copy))


@pytest.mark.parametrize("name", ["runs.parquet", "curves.parquet", "inputs.json"])
def test_measures_of_which_one_is_missing_are_not_current(copy: Path, name: str) -> None:
    (copy / "measures" / name).unlink()

    assert not is_current(SweepDirectory(copy))


def test_measures_of_another_version_or_of_other_parts_are_not_current(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation, "__version__", "0.0.1")
    assert not is_current(SweepDirectory(copy))
    monkeypatch.undo()

    next((copy / "runs").glob("part-*")).unlink()
    assert not is_current(SweepDirectory(copy))


def test_a_directory_of_something_else_has_no_current_measures(tmp_path: Path) -> None:
    assert not is_current(SweepDirectory(tmp_path))


# Rows of one run.


def tries(*statuses: str, seed: int = 1) -> pa.Table:
    rows = [
        {"experiment": "e", "seed": seed, "status": status, "message": f"{status} {number}"}
        for number, status in enumerate(statuses)
    ]
    return pa.Table.from_pylist(rows, schema=RUN_SCHEMA)


@pytest.mark.parametrize("statuses", [("failed", "done"), ("done", "crashed"), ("crashed", "failed", "done")])
def test_a_run_that_was_done_in_the_end_is_done(statuses: tuple[str, ...]) -> None:
    assert one_per_run(tries(*statuses))["status"].to_pylist() == ["done"]


def test_every_run_has_one_row() -> None:
    rows = pa.concat_tables([tries("failed", "failed"), tries("done", seed=2)])

    found = one_per_run(rows).to_pylist()

    assert [(row["seed"], row["message"]) for row in found] == [(1, "failed 0"), (2, "done 0")]


# Files that are not as they should be. Spark is not asked.


def refused(path: Path, spark: SparkSession) -> str:
    with pytest.raises(ResultError) as caught:
        consolidate(SweepDirectory(path), spark)
    assert not is_current(SweepDirectory(path))
    return str(caught.value)


def test_a_damaged_part_is_named_with_the_remedy(copy: Path, spark: SparkSession) -> None:
    part = min((copy / "runs").glob("part-*"))
    part.write_bytes(part.read_bytes()[:-20])

    message = refused(copy, spark)

    assert message.startswith(f"{part}: cannot be read as Parquet")
    assert message.endswith("delete it and repeat the sweep: its runs will be repeated")


def test_a_part_that_is_damaged_inside_is_named(copy: Path, spark: SparkSession) -> None:
    part = min((copy / "runs").glob("part-first-*"))
    content = bytearray(part.read_bytes())
    content[100:2000] = bytes(1900)
    part.write_bytes(content)

    assert refused(copy, spark).startswith(f"{part}: cannot be read as Parquet")


def test_a_foreign_part_is_named(copy: Path, spark: SparkSession) -> None:
    part = copy / "runs" / "part-foreign.parquet"
    pq.write_table(pa.table({"experiment": ["a"], "seed": [1]}), part)

    assert refused(copy, spark).startswith(f"{part}: does not hold the rows of runs; delete it")


def test_a_sweep_without_runs_says_so(tmp_path: Path, plan: Plan, spark: SparkSession) -> None:
    directory = SweepDirectory(tmp_path)
    directory.prepare(plan)

    assert f"{directory.place('runs')}: holds no runs" in refused(tmp_path, spark)


@pytest.mark.parametrize("text", [None, "no JSON", "[]", '{"title": "something else"}'])
def test_a_directory_that_is_no_sweep_says_so(text: str | None, copy: Path, spark: SparkSession) -> None:
    about = copy / "about.json"
    about.unlink()
    if text is not None:
        about.write_text(text, encoding="utf-8")

    message = refused(copy, spark)

    assert message.startswith(str(about))
    assert "name a directory that `endive sweep` has written" in message


def test_a_plan_that_is_not_one_says_so(copy: Path, spark: SparkSession) -> None:
    (plan,) = copy.glob("experiments-*.parquet")
    pq.write_table(pa.table({"family": ["a"]}), plan)

    assert refused(copy, spark).startswith(f"{plan}: cannot be read as the experiments of a sweep")


# Transactions.


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A sweep that keeps its transactions, consolidated."""
    path = tmp_path_factory.mktemp("kept") / "with {odd} [names]*"
    leave_runs(path, small_plan(tables="[1, 3]", scales="[2000, 150]", keep="transactions"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consolidation, "ROWS_HERE_MAX", 0)
        consolidate(SweepDirectory(path), spark)
    return path


def test_metrics_from_kept_transactions_are_those_of_the_rows_of_the_runs(kept: Path) -> None:
    recorded = pa.concat_tables([pq.read_table(part) for part in (kept / "runs").glob("part-*")])

    assert len(recorded) == 12
    assert differences(measure(kept, "runs"), recorded, ("experiment", "seed")) == []


def test_transactions_are_one_data_set_with_parameters_as_columns(kept: Path) -> None:
    files = sorted((kept / "measures" / "transactions").iterdir())
    rows = pa.concat_tables([pq.read_table(file) for file in files])

    assert rows.column_names == ["experiment", "seed", *PARAMETERS, *SCHEMA.names]
    assert len(files) == 2  # as many as cores, since they are small
    runs = sorted((kept / "transactions").glob("*/*.parquet"))
    assert len(rows) == sum(pq.read_metadata(run).num_rows for run in runs)
    for run in runs[::5]:
        chosen = [("experiment", "=", run.parent.name), ("seed", "=", int(run.stem))]
        own = pa.concat_tables([pq.read_table(file, filters=chosen) for file in files])
        assert own.select(SCHEMA.names).equals(pq.read_table(run))
        assert len(own[LOAD].unique()) == 1


def kept_copy(kept: Path, tmp_path: Path) -> tuple[Path, Path]:
    path = Path(shutil.copytree(kept, tmp_path / "copy"))
    (path / "measures" / "inputs.json").unlink()
    return path, sorted((path / "transactions").glob("*/*.parquet"))[3]


def test_transactions_are_not_consolidated_without_spark(kept: Path, tmp_path: Path) -> None:
    path, _ = kept_copy(kept, tmp_path)

    with pytest.raises(SparkUnavailableError, match="transactions are consolidated on Spark"):
        consolidate(SweepDirectory(path), None)


def test_missing_transactions_are_named(kept: Path, tmp_path: Path, spark: SparkSession) -> None:
    path, run = kept_copy(kept, tmp_path)
    run.unlink()

    assert refused(path, spark).startswith(f"{run}: does not exist; repeat the sweep")


@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_damaged_transactions_are_named(damage: str, kept: Path, tmp_path: Path, spark: SparkSession) -> None:
    path, run = kept_copy(kept, tmp_path)
    if damage == "cut":
        run.write_bytes(run.read_bytes()[:1000])
    else:
        pq.write_table(pa.table({"a": [1]}), run)

    message = refused(path, spark)

    assert message.startswith(f"{run}: ")
    assert "repeat the sweep" in message
    assert json.loads((path / "about.json").read_text(encoding="utf-8"))["keep"] == "transactions"
    assert sorted(found.name for found in (path / "measures").glob(".*")) == []
