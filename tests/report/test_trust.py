"""The report marks figures that rest on a part of the model that was not checked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from endive.pipeline.directory import about_plan
from endive.report.charts import draw
from endive.report.formatting import number
from endive.report.groups import ReportGroup, groups_of
from endive.report.headline import headline_of
from endive.report.page import write_report
from endive.report.reading import read_results
from endive.report.specs import picture_of
from endive.report.trust import mark_of_row, notes_of
from tests.pipeline.sweeps import small_plan
from tests.report.builder import PROVIDERS, write_results

GOOD, BAD = {"trust": "checked", "checked": "measured"}, {"trust": "unchecked", "checked": "contradicted: by much"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_results(tmp_path, [PROVIDERS], seeds=(1, 2))


def group_with(directory: Path, trust: dict[str, dict[str, str]]) -> ReportGroup:
    file = directory / "about.json"
    about = json.loads(file.read_text(encoding="utf-8"))
    about["families"][0] |= {"trust": trust, "catalogs": ["glue catalog, granularity table"]}
    file.write_text(json.dumps(about), encoding="utf-8")
    (group,) = groups_of(read_results(directory))
    return group


def test_only_the_series_of_a_doubtful_provider_are_marked(tmp_path: Path) -> None:
    labels = {"s3": "checked", "s3x": "partly", "azurex": "unchecked"}
    directory = write_results(tmp_path, [replace(PROVIDERS, trust=labels)], seeds=(1, 2))
    group = group_with(directory, {"provider s3": GOOD, "provider azurex": BAD, "cost model iceberg": GOOD})
    marks = {row["series"]: mark_of_row(group, row) for row in group.series.to_dict("records")}
    assert {name.partition(" ")[0] for name, mark in marks.items() if mark} == {"azurex"}
    assert notes_of(group) == ["† provider azurex: contradicted: by much"]
    headline = headline_of(group)
    assert headline.sentence.endswith(" †")
    assert {name for name, text in headline.providers if text.endswith(" †")} == {"azurex"}


def test_a_doubtful_cost_model_marks_every_series(directory: Path) -> None:
    group = group_with(directory, {"provider s3": GOOD, "cost model iceberg": BAD})
    assert all(mark_of_row(group, row) for row in group.series.to_dict("records"))


def test_a_group_that_was_checked_has_no_mark(directory: Path) -> None:
    group = group_with(directory, {"provider s3": GOOD})
    assert not any(mark_of_row(group, row) for row in group.series.to_dict("records"))
    assert not headline_of(group).sentence.endswith("†")


def test_the_page_shows_marks_footnotes_and_the_catalog(directory: Path) -> None:
    group_with(directory, {"cost model iceberg": BAD})
    page = Path(write_report(directory)).read_text(encoding="utf-8")
    assert "† cost model iceberg: contradicted: by much" in page
    assert "glue catalog, granularity table" in page
    assert page.count("†") > 10


def test_charts_carry_the_mark_and_pictures_the_footnotes(directory: Path) -> None:
    group = group_with(directory, {"cost model iceberg": BAD})
    drawings = draw(group)
    assert len(drawings) > 3
    assert all(drawing.title.endswith(" †") for drawing in drawings)
    for drawing in drawings:
        title = json.loads(picture_of(group, drawing))["title"]
        assert title["text"].endswith(" †")
        assert "† cost model iceberg: contradicted: by much" in title["subtitle"]
    checked = group_with(directory, {"cost model iceberg": GOOD})
    assert not any("†" in picture_of(checked, drawing) for drawing in draw(checked))


def test_the_page_has_the_price_of_a_million_commits(directory: Path) -> None:
    page = Path(write_report(directory)).read_text(encoding="utf-8")
    assert "Dollars<small>per million</small>" in page
    first = read_results(directory).curves["usable_dollars_per_million_commits"].dropna().iloc[0]
    assert f">{number(first)}<" in page


def test_results_of_an_older_version_have_no_labels(directory: Path) -> None:
    page = Path(write_report(directory)).read_text(encoding="utf-8")
    assert "†" not in page


def test_a_plan_says_what_its_catalogs_are_and_how_its_model_was_checked() -> None:
    about, _ = about_plan(small_plan())
    (group,) = about["families"]
    assert all("granularity" in name for name in group["catalogs"])
    assert {label["trust"] for label in group["trust"].values()} <= {"checked", "partly", "unchecked"}
    assert any(part.startswith("provider ") for part in group["trust"])
