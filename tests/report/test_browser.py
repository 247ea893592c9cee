"""The page as people meet it: in Chromium, offline, with a mouse, a keyboard, in the dark and on a phone."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from endive.report.page import write_report
from tests.report.builder import PROVIDERS, SCALE, SCALES_MS, Grid, write_results

pytestmark = pytest.mark.slow


class Watch:
    """Everything that a page should not do."""

    def __init__(self, page: Page) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def outside(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("file:", "data:"))]


Visit = Callable[..., tuple[Page, Watch]]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Open a page in a browser without a network, and wait until every chart is drawn."""
    contexts: list[BrowserContext] = []

    def opened(path: Path, **options: Any) -> tuple[Page, Watch]:
        settings: dict[str, Any] = {"viewport": {"width": 1100, "height": 900}, "offline": True} | options
        context = chromium.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        watch = Watch(page)
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-drawn]", timeout=120_000)
        return page, watch

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(visit: Visit, directory: Path) -> Page:
    return visit(directory / "report.html")[0]


def chart(page: Page, name: str, group: str = "provider_tables") -> Locator:
    return page.locator(f"[id$='-{group}-{name}']")


def marks(chart: Locator) -> Locator:
    return chart.locator(".role-mark.mark-symbol path, .role-mark.mark-rect path")


def eventually(page: Page, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds: charts follow their controls a moment later."""
    for _ in range(100):
        if holds():
            return
        page.wait_for_timeout(50)
    assert holds()


def test_every_chart_is_drawn_without_network_or_errors(visit: Visit, directory: Path) -> None:
    page, watch = visit(directory / "report.html")

    assert watch.outside() == []
    assert watch.complaints == []
    charts = page.locator(".chart")
    assert charts.count() == page.locator("figure").count() >= 15
    for place in range(charts.count()):
        assert marks(charts.nth(place)).count() > 0, charts.nth(place).get_attribute("id")


@pytest.mark.parametrize(
    "grid",
    [
        Grid("alone", {}, "Alone", load_key=None),
        Grid("no_load", {"storage.provider": ("s3", "s3x"), "catalog.num_tables": (1, 2, 4)}, load_key=None),
        Grid("failed", {SCALE: (500.0,)}, failing=frozenset({(0, 1)})),
        Grid("</script> \"' <b>", {"storage.provider": ("s3", "</script><b>\"'"), SCALE: SCALES_MS[::3]}, "<i>"),
    ],
    ids=["alone", "no load", "failed", "markup"],
)
def test_unusual_groups_are_drawn_without_errors(visit: Visit, tmp_path: Path, grid: Grid) -> None:
    page, watch = visit(Path(write_report(write_results(tmp_path, [grid], seeds=(1,)))))

    assert watch.complaints == []
    charts = page.locator(".chart")
    for place in range(charts.count()):
        assert marks(charts.nth(place)).count() > 0


def test_a_legend_entry_toggles_its_series(page: Page) -> None:
    latency = chart(page, "latency")
    entries = latency.locator(".role-legend-label text")
    everything = marks(latency).count()

    entries.filter(has_text="azurex").click()
    expect(marks(latency)).to_have_count(everything // 3)
    entries.filter(has_text="s3x").click()
    expect(marks(latency)).to_have_count(2 * everything // 3)
    entries.filter(has_text="s3x").click()
    entries.filter(has_text="azurex").click()
    expect(marks(latency)).to_have_count(everything)


def test_a_legend_entry_is_toggled_by_keyboard(page: Page) -> None:
    success = chart(page, "success")
    everything = marks(success).count()
    entry = success.locator(".role-legend-symbol path").nth(1)

    assert entry.get_attribute("aria-label") == "Show s3x"
    entry.focus()
    page.keyboard.press("Enter")
    expect(marks(success)).to_have_count(everything // 3)
    page.keyboard.press("Enter")
    expect(marks(success)).to_have_count(everything)


def outline(chart: Locator) -> list[str | None]:
    return [mark.get_attribute("transform") or mark.get_attribute("d") for mark in marks(chart).all()]


def differs(chart: Locator, before: list[str | None]) -> bool:
    return outline(chart) != before


def test_a_choice_changes_the_chart_and_all_charts_of_the_group(page: Page) -> None:
    before = {name: outline(chart(page, name)) for name in ("latency", "success", "times")}
    other = outline(chart(page, "success", "baseline"))

    page.locator("[id$='-provider_tables-success-controls'] select[name=only_catalog_num_tables]").select_option("10")
    for name, outlined in before.items():
        control = page.locator(f"[id$='-provider_tables-{name}-controls'] select[name=only_catalog_num_tables]")
        expect(control).to_have_value("10")
        eventually(page, partial(differs, chart(page, name), outlined))
    assert outline(chart(page, "success", "baseline")) == other


def test_the_colours_can_be_those_of_another_parameter(page: Page) -> None:
    success = chart(page, "success")
    controls = page.locator("[id$='-provider_tables-success-controls']")
    expect(controls.locator("select[name=only_storage_provider]")).to_be_hidden()

    controls.locator("select[name=colour_by]").select_option("catalog_num_tables")
    expect(success.locator(".role-legend-label text")).to_have_text(["1", "2", "10"])
    expect(controls.locator("select[name=only_storage_provider]")).to_be_visible()
    expect(controls.locator("select[name=only_catalog_num_tables]")).to_be_hidden()


def test_the_quantile_and_the_metric_of_the_heat_map_can_be_chosen(page: Page) -> None:
    latency, heat = chart(page, "latency"), chart(page, "heat")
    before, texts = outline(latency), heat.locator(".mark-text.role-mark text").all_text_contents()

    page.locator("[id$='-provider_tables-latency-controls'] select[name=quantile]").select_option("p50")
    page.locator("[id$='-provider_tables-heat-controls'] select[name=heat]").select_option("committed_per_s")
    expect(heat.locator(".mark-text.role-mark text").first).not_to_have_text(texts[0])
    eventually(page, lambda: outline(latency) != before)


def test_hovering_shows_exact_metrics_with_intervals(page: Page, directory: Path) -> None:
    rows = pd.read_parquet(directory / "measures" / "experiments.parquet")
    rows = rows[(rows["family"] == "provider_tables") & (rows["catalog.num_tables"] == 1) & (rows["load"] == 5.0)]
    row = rows.set_index("storage.provider").loc["s3"]
    chart(page, "success").locator("path[aria-label*='s): 5;'][aria-label$=' s3']").hover()

    tip = page.locator("#vg-tooltip-element.visible")
    for name, text in {
        "Provider": "s3",
        "Tables": "1",
        "Success": f"{100 * row['success']:.2f} ± {100 * row['success_ci']:.2f} %",
        "Retries": f"{row['retries_mean']:.4g} ± 0",
        "Seeds": "3",
    }.items():
        cells = tip.locator("tr").filter(has=page.get_by_text(name, exact=True)).locator("td.value")
        expect(cells).to_have_text(text)


def labels(chart: Locator) -> list[str]:
    return sorted(label for label in chart.locator(".role-axis-label text").all_text_contents() if label)


def test_the_wheel_zooms_with_control_and_a_double_click_resets_the_view(page: Page) -> None:
    success = chart(page, "success")
    success.scroll_into_view_if_needed()
    box = success.locator("svg").bounding_box()
    assert box is not None
    everything = labels(success)

    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -500)
    page.keyboard.up("Control")
    eventually(page, lambda: labels(success) != everything)
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3)
    eventually(page, lambda: labels(success) == everything)


def background(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def axis_colour(page: Page) -> str:
    colour: str = (
        chart(page, "success").locator(".role-axis-label text").first.evaluate("e => getComputedStyle(e).fill")
    )
    return colour


def test_dark_and_light_follow_the_system_and_the_button(visit: Visit, directory: Path) -> None:
    page = visit(directory / "report.html", color_scheme="light")[0]
    light = background(page), axis_colour(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page), axis_colour(page)

    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.get_by_role("button", name="Light theme").click()
    assert (background(page), axis_colour(page)) == light
    page.reload()  # the choice holds for the session
    page.wait_for_selector("html[data-drawn]")
    assert (background(page), axis_colour(page)) == light


def test_paper_is_always_light(visit: Visit, directory: Path) -> None:
    page = visit(directory / "report.html", color_scheme="light")[0]
    light = background(page), axis_colour(page)
    page.get_by_role("button", name="Dark theme").click()
    page.emulate_media(media="print", color_scheme="dark")

    assert (background(page), axis_colour(page)) == light


def test_a_phone_needs_no_scrolling_sideways(visit: Visit, directory: Path) -> None:
    page = visit(directory / "report.html", viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)[0]

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for svg in page.locator(".chart svg").all():
        box = svg.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def test_the_table_sorts_and_filters(visit: Visit, tmp_path: Path) -> None:
    grids = [PROVIDERS, Grid("more", {"catalog.num_tables": (1, 2, 3, 4), SCALE: SCALES_MS[::3]}, "More tables")]
    page = visit(Path(write_report(write_results(tmp_path, grids, seeds=(1,)))))[0]
    rows = page.locator("#series tbody tr:visible")
    values = "rows => rows.map(row => Number(row.querySelector('td.n').dataset.v))"

    page.get_by_role("button", name="Sustainable commits/s").click()
    assert page.locator("#series tbody tr").evaluate_all(values) == sorted(
        page.locator("#series tbody tr").evaluate_all(values), reverse=True
    )
    assert page.locator("#series th[aria-sort=descending]").count() == 1
    page.get_by_label("Filter").fill("s3x 10")
    expect(rows).to_have_count(1)
    expect(page.locator("#count")).to_have_text("1 series")


def test_charts_have_alternative_text(page: Page) -> None:
    for place in page.locator(".chart").all():
        assert place.get_attribute("role") == "graphics-document"
        assert len(place.get_attribute("aria-label") or "") > 30
    for select in page.locator(".controls select").all():
        assert select.evaluate("e => e.labels.length") == 1
