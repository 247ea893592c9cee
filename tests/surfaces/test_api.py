"""`import endive`: run, compare and capacity from Python, as a notebook uses them."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import endive
from endive.errors import ConfigurationError, ResultError
from endive.extras import MissingExtraError
from endive.sim.config.configuration import parse_configuration
from endive.sim.results.display import Displayed
from endive.sim.results.experiment import Experiment
from tests.surfaces.files import SMALL

DICTIONARY: dict[str, Any] = tomllib.loads(SMALL)


@pytest.fixture(scope="module")
def results() -> endive.RunResults:
    return endive.run(SMALL, seeds="1..3")


@pytest.fixture(scope="module")
def comparison(results: endive.RunResults) -> endive.Comparison:
    return endive.compare(results, {**DICTIONARY, "storage": {"provider": "s3x"}})


@pytest.fixture(scope="module")
def capacities() -> endive.CapacityResults:
    return endive.capacity(SMALL, vary={"catalog.num_tables": [1, 4]}, seeds=[1, 2], tolerance=0.2)


# Importing.


def test_import_endive_is_light() -> None:
    heavy = "{'numba', 'numpy', 'pyarrow', 'pyspark', 'altair', 'pyiceberg', 'pandas', 'simpy'} & set(sys.modules)"
    code = f"import sys, endive; dir(endive); print({heavy})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_every_public_name_exists_and_is_documented() -> None:
    for name in endive.__all__:
        assert name in dir(endive)
        assert name == "__version__" or getattr(endive, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        _ = endive.rnu  # type: ignore[attr-defined]


def test_sweep_is_the_pipelines_function() -> None:
    from endive.pipeline import run_sweep

    assert endive.sweep is run_sweep
    with pytest.raises(ConfigurationError, match=r"sweep.toml: 1 error"):
        endive.sweep({"grid": {"storage.provider": "s3"}, "configuration": DICTIONARY})


# Running.


def test_a_dictionary_a_path_and_text_give_the_same_results(tmp_path: Path, results: endive.RunResults) -> None:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")

    for source in (DICTIONARY, tmp_path / "small.toml", str(tmp_path / "small.toml"), parse_configuration(SMALL)):
        assert endive.run(source, seeds=2).metrics == endive.run(results.settings, seeds=2).metrics


@pytest.mark.parametrize(("seeds", "expected"), [(None, [1]), (7, [7]), ([3, 1, 3], [3, 1]), ("2..4", [2, 3, 4])])
def test_seeds_are_one_several_or_a_range(seeds: Any, expected: list[int]) -> None:
    assert endive.run(SMALL, seeds=seeds, rows=False).seeds == expected


@pytest.mark.parametrize("seeds", ["3", [], [-1], "5..1"])
def test_seeds_that_make_no_sense_are_refused(seeds: Any) -> None:
    with pytest.raises(ConfigurationError, match="seeds: 1 error"):
        endive.run(SMALL, seeds=seeds)


def test_overrides_replace_values() -> None:
    changed = endive.run(SMALL, overrides={"catalog.num_tables": 3, "transaction.runtime": {"value": 20}})

    assert changed.settings.values.catalog.num_tables == 3
    assert changed.settings.values.transaction.runtime.value == 20


def test_a_configuration_with_errors_reports_all_of_them() -> None:
    with pytest.raises(ConfigurationError, match="4 errors"):
        endive.run({"storage": {"provider": "s4"}, "catalog": {"num_tables": 0}, "transaction": {"retry": -1}})
    with pytest.raises(ConfigurationError, match="NoneType"):
        endive.run({"storage": {"provider": None}})


def test_both_engines_give_the_same_results(results: endive.RunResults) -> None:
    reference = endive.run(SMALL, seeds="1..3", engine="reference")

    assert reference.metrics == results.metrics
    assert reference.to_arrow("transactions").equals(results.to_arrow("transactions"))
    assert endive.run(SMALL, seeds="1..3", rows=False).metrics == results.metrics


def test_results_are_written_and_found_again(tmp_path: Path, results: endive.RunResults) -> None:
    first, again = (endive.run(SMALL, seeds="1..3", out=tmp_path) for _ in range(2))

    assert first.metrics == again.metrics == results.metrics
    assert {result.path for result in again.results} == set(tmp_path.glob("*/*/results.parquet"))
    assert not Experiment(results.settings, tmp_path / "other").directory.exists()


def test_metrics_are_a_row_for_each_seed_and_transactions_have_theirs(results: endive.RunResults) -> None:
    table = results.to_arrow()

    assert table["seed"].to_pylist() == [1, 2, 3]
    mean = sum(table["committed_per_s"].to_pylist()) / 3
    assert results.metrics["committed_per_s"].mean == pytest.approx(mean)
    rows = results.to_arrow("transactions")
    assert rows.num_rows == sum(table["transactions"].to_pylist())
    assert set(rows["seed"].to_pylist()) == {1, 2, 3}
    with pytest.raises(ValueError, match="rows were not kept"):
        endive.run(SMALL, rows=False).to_arrow("transactions")


# Comparing.


def test_a_configuration_beside_results_runs_with_their_seeds(comparison: endive.Comparison) -> None:
    assert comparison.seeds == [1, 2, 3]
    assert comparison.compared_on == "compared on seeds 1, 2, 3"
    assert (comparison.ratio("latency.all.p50_ms") or 1.0) < 0.8  # S3 Express is faster

    row = {row["metric"]: row for row in comparison.to_arrow().to_pylist()}["committed_per_s"]
    assert row["difference"] == pytest.approx(row["b"] - row["a"])


def test_sides_without_a_common_seed_are_refused(results: endive.RunResults) -> None:
    with pytest.raises(ResultError, match="have no seed in common: the first has seeds 1, 2, 3, the second seed 9"):
        endive.compare(results, endive.run(SMALL, seeds=9))


def test_results_cannot_be_overridden(results: endive.RunResults) -> None:
    with pytest.raises(ConfigurationError, match="only a configuration can be changed"):
        endive.compare(results, results, overrides={"catalog.num_tables": 2})


# Capacity.


def test_each_value_that_is_varied_has_its_capacity(capacities: endive.CapacityResults) -> None:
    assert list(capacities.answers) == ["catalog.num_tables=1", "catalog.num_tables=4"]
    assert capacities.complete
    assert capacities["catalog.num_tables=1"].committed.mean > 0

    table = capacities.to_arrow()
    assert table["case"].to_pylist() == list(capacities.answers)
    assert table["commits_per_s"].null_count == 0


def test_without_variation_the_case_has_the_configurations_label() -> None:
    found = endive.capacity(SMALL, p99_ms=1.0, seeds=1, overrides={"experiment.label": "mine"})

    assert list(found.answers) == ["mine"]
    assert "does not hold at any load" in found.sentence("mine")
    assert found.to_arrow()["commits_per_s"].to_pylist() == [None]


# Looking at results.


def test_results_print_as_tables(
    results: endive.RunResults, comparison: endive.Comparison, capacities: endive.CapacityResults
) -> None:
    assert (
        "configuration: s3 (measured profile), instant catalog, granularity catalog, cost model spec, 3 seeds"
        in repr(results)
    )
    assert "committed " in repr(results)
    assert "difference" in repr(comparison)
    assert "commits/s" in repr(capacities)
    for shown in (results, comparison, capacities):
        assert max(map(len, repr(shown).splitlines())) < 200
        html = shown._repr_html_()
        assert html.count("<table>") == html.count("</table>") == len(shown.grids())


def test_html_is_escaped() -> None:
    assert "<script>" not in endive.run(SMALL, rows=False)._repr_html_().replace("&lt;script&gt;", "")


@pytest.mark.parametrize("name", ["results", "comparison", "capacities"])
def test_results_become_frames_and_charts(name: str, request: pytest.FixtureRequest) -> None:
    shown: Displayed = request.getfixturevalue(name)
    table: pa.Table = shown.to_arrow()

    assert list(shown.to_pandas().columns) == table.column_names
    assert shown.to_polars().columns == table.column_names
    chart = shown.chart().to_dict()
    assert len(chart["layer"]) == 2


def test_a_missing_package_names_the_extra(results: endive.RunResults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"'altair'.*pip install 'endive\[report\]'"):
        results.chart()
