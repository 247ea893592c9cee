"""Every chart is valid Vega-Lite, and a group gets those that make sense for it."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import vl_convert

from endive.report import Picture
from endive.report.charts import draw
from endive.report.drawing import Drawing
from endive.report.groups import ReportGroup, groups_of
from endive.report.metrics import DEFINITIONS
from endive.report.reading import read_results
from endive.report.specs import columns_of, picture_of, script_json, spec_of
from endive.report.static import VEGA_LITE, pictures_of
from endive.report.theme import DARK, LIGHT
from tests.report.builder import SCALE, Grid, write_results

ALL = ["latency", "success", "committed", "heat", "sustainable", "times", "kinds"]


def names(group: ReportGroup) -> list[str]:
    return [drawing.name for drawing in draw(group)]


def drawing_of(group: ReportGroup, name: str) -> Drawing:
    return next(drawing for drawing in draw(group) if drawing.name == name)


def controls(drawing: Drawing) -> dict[str, list[str]]:
    """The choices that the reader has: name and options."""
    params = spec_of(drawing)["params"]
    return {param["name"]: param["bind"]["options"] for param in params if "options" in (param.get("bind") or {})}


def test_a_group_with_several_parameters_has_every_chart(groups: tuple[ReportGroup, ...]) -> None:
    assert names(groups[0]) == ALL


def test_a_group_that_varies_only_the_load_has_no_comparing_charts(groups: tuple[ReportGroup, ...]) -> None:
    assert names(groups[1]) == ["latency", "success", "committed", "times"]  # one operation type, one series


def test_every_parameter_can_be_chosen_or_spread_by_colour(groups: tuple[ReportGroup, ...]) -> None:
    chosen = controls(drawing_of(groups[0], "latency"))

    assert chosen["colour_by"] == ["storage_provider", "catalog_num_tables"]
    assert chosen["only_catalog_num_tables"] == ["1", "2", "10"]
    assert chosen["only_storage_provider"] == ["s3", "s3x", "azurex"]
    assert chosen["quantile"] == ["p50", "p95", "p99", "p999"]


def test_a_single_parameter_is_always_spread_and_needs_no_control(groups: tuple[ReportGroup, ...]) -> None:
    assert controls(drawing_of(groups[2], "success")) == {}


def test_heat_maps_show_three_metrics(groups: tuple[ReportGroup, ...]) -> None:
    assert controls(drawing_of(groups[0], "heat"))["heat"] == ["success", "all_p99_ms", "committed_per_s"]


def test_a_closed_loop_has_no_diagonal(groups: tuple[ReportGroup, ...]) -> None:
    opened, closed = (json.dumps(spec_of(drawing_of(group, "committed"))) for group in (groups[0], groups[2]))

    assert "strokeDash" in opened
    assert "strokeDash" not in closed
    assert '"Writers"' in closed


@pytest.mark.parametrize("place", [0, 1, 2])
def test_charts_compile_and_have_what_the_page_needs(groups: tuple[ReportGroup, ...], place: int) -> None:
    for drawing in draw(groups[place]):
        vega: dict[str, Any] = vl_convert.vegalite_to_vega(picture_of(groups[place], drawing), vl_version=VEGA_LITE)
        assert vega["marks"]
        assert spec_of(drawing)["width"] == "container"
        assert drawing.description.endswith(".")
        assert set(drawing.measures) <= set(DEFINITIONS)


@pytest.mark.parametrize(
    "grid",
    [
        Grid("alone", {}, load_key=None),
        Grid("one", {SCALE: (500.0,)}),
        Grid("no_load", {"storage.provider": ("s3", "s3x"), "catalog.num_tables": (1, 2, 4)}, load_key=None),
        Grid("unsustainable", {"storage.provider": ("gcp", "s3"), SCALE: (20.0, 50.0)}),
    ],
    ids=lambda grid: grid.name,
)
def test_charts_of_unusual_groups_compile(tmp_path: Path, grid: Grid) -> None:
    (group,) = groups_of(read_results(write_results(tmp_path, [grid], seeds=(1,))))
    drawings = draw(group)

    assert {"success", "times"} <= {drawing.name for drawing in drawings}
    for drawing in drawings:
        assert vl_convert.vegalite_to_svg(picture_of(group, drawing), vl_version=VEGA_LITE).startswith("<svg")


def test_a_group_whose_runs_all_failed_has_no_charts(tmp_path: Path) -> None:
    grid = Grid("failed", {SCALE: (500.0,)}, failing=frozenset({(0, 1)}))
    (group,) = groups_of(read_results(write_results(tmp_path, [grid], seeds=(1,))))

    assert draw(group) == ()


def test_one_seed_has_no_bands(tmp_path: Path) -> None:
    grid = Grid("seeds", {"storage.provider": ("s3", "s3x"), SCALE: (500.0, 1000.0)})
    one, two = (
        groups_of(read_results(write_results(tmp_path / str(len(seeds)), [grid], seeds)))[0] for seeds in ((1,), (1, 2))
    )

    assert '"area"' not in json.dumps(spec_of(drawing_of(one, "success")))
    assert '"area"' in json.dumps(spec_of(drawing_of(two, "success")))


def test_pictures_state_the_selection_and_need_no_style_sheet(groups: tuple[ReportGroup, ...]) -> None:
    found = dict(pictures_of(groups[0], drawing_of(groups[0], "latency"), [Picture.SVG, Picture.PNG]))

    svg = found["provider_tables-latency.svg"].decode()
    texts = ["".join(element.itertext()) for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]  # noqa: S314
    assert "Providers and tables · p99 · Colour: Provider · Tables: 1" in texts
    assert {"s3", "s3x", "azurex"} <= set(texts)
    assert "var(" not in svg
    assert found["provider_tables-latency.png"].startswith(b"\x89PNG")


def test_data_are_plain_json(groups: tuple[ReportGroup, ...]) -> None:
    columns = columns_of(groups[0].points)

    assert json.loads(script_json(columns)) == columns
    assert {type(value) for values in columns.values() for value in values} <= {str, int, float, bool, type(None)}


def test_no_text_can_end_the_script_it_stands_in() -> None:
    text = "</script><!-- \u2028"

    assert "<" not in script_json([text])
    assert json.loads(script_json([text])) == [text]


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colours_stand_out_from_the_background(theme: dict[str, str]) -> None:
    def contrast(name: str) -> float:
        light, dark = sorted((luminance(theme[name]), luminance(theme["paper"])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    assert min(contrast(name) for name in ("ink", "soft")) >= 4.5  # WCAG: text
    assert min(contrast(name) for name in theme if name[0] == "s" and name[1:].isdigit()) >= 3.0  # WCAG: graphics
