"""Every place that shows the figures of a sweep has prices, and marks what rests on an unchecked part of the model."""

import json
from pathlib import Path

import pytest

from endive.cli import sweep as command
from endive.pipeline.consolidate import consolidate
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.opening import open_results
from endive.pipeline.plan import Plan
from endive.pipeline.results import SweepResults, series_cells
from endive.pipeline.sweep import Target, Where
from endive.pipeline.sweep_file import parse_group
from endive.sim.engine.run import summarise_compiled
from endive.sim.results.prices import dollars_per_million_commits
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import sweep_text
from tests.surfaces.conftest import endive  # noqa: F401 - a fixture
from tests.surfaces.files import CommandLine

NOTE = "† cost model spec: unchecked"
PRICE = "dollars_per_million_commits"


def plan_of_models() -> Plan:
    """`pyiceberg` on the measured S3 was compared with reality, `spec` with nothing."""
    text = sweep_text(scales="[4000, 2000]").replace('provider = "s3"', 'provider = "s3"\nprofiles = "measured"')
    text = text.replace('"catalog.num_tables" = [1, 3]', '"transaction.cost_model" = ["pyiceberg", "spec"]')
    return Plan((parse_group(text, "models.toml"),))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    directory = leave_runs(tmp_path_factory.mktemp("marks") / "models", plan_of_models())
    consolidate(directory, None)
    return directory


def test_measures_have_prices_and_labels(swept: SweepDirectory) -> None:
    results = open_results(swept)
    for name in ("runs", "experiments", "curves", "counters"):
        rows = results.measures(name).to_pylist()
        labels = {row["transaction.cost_model"]: row["trust"] for row in rows}
        assert labels == {"pyiceberg": "checked", "spec": "unchecked"}, name
    plan = plan_of_models()
    for row in results.measures("runs").to_pylist():
        settings = plan.settings[row["experiment"]]
        _, counters = summarise_compiled(settings, row["seed"], settings.window)
        assert row[PRICE] == dollars_per_million_commits(settings, counters)
        assert row[PRICE] > 0
    experiments = {row["experiment"]: row for row in results.measures("experiments").to_pylist()}
    assert all(row[PRICE] > 0 and row[f"{PRICE}_ci"] is not None for row in experiments.values())
    for row in results.measures("curves").to_pylist():
        assert row[f"usable_{PRICE}"] in [one[PRICE] for one in experiments.values()]


def test_the_figures_of_an_unchecked_series_are_marked(swept: SweepDirectory) -> None:
    results = SweepResults(swept)
    ((_, rows),) = results.groups.items()
    cells = {row["transaction.cost_model"]: series_cells(row) for row in rows}
    assert all(cell.endswith(" †") for cell in cells["spec"] if cell != "–")
    assert not any("†" in cell for cell in cells["pyiceberg"])
    assert any(note.startswith(NOTE) for note in results.footnotes)
    assert NOTE in repr(results)
    assert NOTE in results._repr_html_()


def test_the_sweep_command_prints_prices_marks_and_footnotes(
    swept: SweepDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "run_refined", lambda *_: SweepResults(swept))
    command.run_and_show(plan_of_models(), Target(swept), Where(), report=False, as_json=False)
    shown = capsys.readouterr().out
    assert "$/million" in shown
    assert NOTE in shown
    lines = {line.split()[0]: line for line in shown.splitlines() if line.startswith(("pyiceberg", "spec"))}
    assert "†" in lines["spec"]
    assert "†" not in lines["pyiceberg"]

    command.run_and_show(plan_of_models(), Target(swept), Where(), report=False, as_json=True)
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert {row["transaction.cost_model"]: row["trust"] for row in group["series"]} == {
        "pyiceberg": "checked",
        "spec": "unchecked",
    }
    assert all(row[f"usable_{PRICE}"] > 0 for row in group["series"])
    assert group["trust"]["cost model spec"]["trust"] == "unchecked"


CATALOG = "cas catalog, granularity catalog"


def test_every_output_of_a_sweep_names_catalog_and_granularity(
    endive: CommandLine,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    swept = leave_runs(endive.directory / "models", plan_of_models())
    consolidate(swept, None)
    assert CATALOG in repr(SweepResults(swept))
    assert CATALOG in SweepResults(swept)._repr_html_()
    assert CATALOG in endive("capacity", "--from", "models").out
    (group,) = json.loads(endive("capacity", "--from", "models", "--json").out)
    assert group["catalogs"] == [CATALOG]
    monkeypatch.setattr(command, "run_refined", lambda *_: SweepResults(swept))
    command.run_and_show(plan_of_models(), Target(swept), Where(), report=False, as_json=False)
    assert CATALOG in capsys.readouterr().out
    command.run_and_show(plan_of_models(), Target(swept), Where(), report=False, as_json=True)
    assert json.loads(capsys.readouterr().out)["groups"][0]["catalogs"] == [CATALOG]


def test_capacities_of_a_saved_sweep_are_marked(endive: CommandLine) -> None:  # noqa: F811 - the fixture
    leave_runs(endive.directory / "models", plan_of_models())
    shown = endive("capacity", "--from", "models")
    assert shown.code == 0, shown.err
    assert "$/million" in shown.out
    assert NOTE in shown.out
    (group,) = json.loads(endive("capacity", "--from", "models", "--json").out)
    assert group["trust"]["cost model spec"]["trust"] == "unchecked"
    assert {row["trust"] for row in group["series"]} == {"checked", "unchecked"}


def test_a_plan_of_an_older_version_has_no_labels(tmp_path: Path) -> None:
    directory = leave_runs(tmp_path / "old", plan_of_models())
    about = json.loads(directory.read("about.json") or b"")
    name = about["experiments"]
    from endive.pipeline.directory import read_parquet

    directory.write_table(name, read_parquet(directory.read(name) or b"").drop_columns(["trust"]))
    ((_, rows),) = open_results(directory).groups.items()
    assert [row["trust"] for row in rows] == [None, None]
    assert not any("†" in cell for row in rows for cell in series_cells(row))


def test_the_report_command_has_a_document(endive: CommandLine) -> None:  # noqa: F811 - the fixture
    leave_runs(endive.directory / "models", plan_of_models())
    document = json.loads(endive("report", "models", "--json").out)
    assert document["report"].endswith("report.html")
    assert [len(group["series"]) for group in document["groups"]] == [2]
