"""`run_sweep` and the results it returns."""

import json
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import endive.pipeline
from endive.errors import ConfigurationError, ResultError
from endive.pipeline import SweepProgress, SweepResults, run_sweep
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan
from endive.pipeline.run_rows import not_done_row
from endive.pipeline.sweep import plan_sweep
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import sweep_text


def signature(plan: Plan) -> list[tuple[str, int]]:
    return sorted(plan.runs)


def test_a_sweep_is_given_by_path_text_or_dictionary(tmp_path: Path) -> None:
    text = sweep_text()
    path = tmp_path / "some.toml"
    path.write_text(text)

    plans = [plan_sweep(source) for source in (path, str(path), text, tomllib.loads(text), [path])]

    assert all(signature(plan) == signature(plans[0]) for plan in plans)
    assert [plan.groups[0].name for plan in plans] == ["some", "some", "sweep", "small", "some"]


def test_seeds_keep_and_overrides_replace_those_of_the_file() -> None:
    plan = plan_sweep(sweep_text(), ["transaction.retry=3"], seeds=[7], keep="transactions")

    assert (plan.groups[0].seeds, plan.keep) == ((7,), "transactions")
    assert {settings.values.transaction.retry for settings in plan.settings.values()} == {3}
    assert plan_sweep(sweep_text(), seeds="4..6").groups[0].seeds == (4, 5, 6)


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ({"title": None}, {}, "cannot be written as TOML"),
        ({"titel": "x"}, {}, "did you mean 'title'"),
        (sweep_text(), {"master": "spork://x"}, "not a master URL"),
        (sweep_text(), {"catalog": "htp://x"}, "unknown scheme 'htp'"),
        (sweep_text(), {"seeds": [1, 1]}, "a seed is given twice"),
    ],
)
def test_invalid_input_is_refused_before_anything_is_written(
    source: object, arguments: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run_sweep(source, tmp_path / "out", **arguments)  # type: ignore[arg-type]

    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_sweep_from_a_dictionary_to_the_report(spark: SparkSession, tmp_path: Path) -> None:
    content = tomllib.loads(sweep_text(tables="[1, 3]"))
    reports: list[SweepProgress] = []

    results = run_sweep(content, tmp_path / "out", master="local[2]", progress=reports.append)

    assert spark is not None  # the session of the tests is used
    assert (reports[-2].runs, reports[-2].runs_total) == (18, 18)
    assert reports[-2].share == pytest.approx(1.0)
    assert reports[-1].message == "computing measures"
    assert [row["series"] for row in results.measures().to_pylist()] == ["1 table", "3 tables"]
    assert len(results.measures("runs")) == 18
    assert Path(results.report()).stat().st_size > 100_000

    reports.clear()
    run_sweep(content, tmp_path / "out", master="local[2]", progress=reports.append)
    assert "18 runs are done already" in [report.message for report in reports]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> SweepResults:
    """A sweep with one failed run."""
    from endive.pipeline.consolidate import consolidate

    path = tmp_path_factory.mktemp("results")
    plan = plan_sweep(sweep_text())
    directory = leave_runs(path, plan, plan.runs[:-1])
    directory.create_part(directory.part("second", 0), [not_done_row(*plan.runs[-1], "failed", "ValueError: <no>")])
    consolidate(SweepDirectory(path), spark)
    return SweepResults(path)


def test_results_are_readable_as_text_and_as_html(results: SweepResults) -> None:
    text, page = repr(results), results._repr_html_()

    assert text.splitlines()[0] == "Small: cas catalog, granularity catalog"
    assert "sustainable load" in text.splitlines()[1]
    assert text.splitlines()[2].startswith("1 table ")
    assert "18 runs, 1 failed; measures in" in text
    assert page.count("<tr>") == 3
    assert "<caption>Small: cas catalog, granularity catalog</caption>" in page


def test_results_name_the_failed_runs_and_go_to_json(results: SweepResults) -> None:
    (failure,) = results.failures

    assert (failure["status"], failure["message"]) == ("failed", "ValueError: <no>")
    document = json.loads(json.dumps(results.to_document()))
    assert [len(group["series"]) for group in document["groups"]] == [2]
    assert document["groups"][0]["series"][0]["usable_load"] == results.measures().to_pylist()[0]["usable_load"]


def test_a_directory_without_measures_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"curves\.parquet: does not exist"):
        SweepResults(tmp_path).measures()


def test_the_public_names_are_those_of_the_package() -> None:
    assert [getattr(endive.pipeline, name).__name__ for name in endive.pipeline.__all__] == endive.pipeline.__all__
    with pytest.raises(AttributeError):
        _ = endive.pipeline.nothing
