"""The page: everything in one file, the metrics of the Parquet files, no input taken for markup."""

import html
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
import typer
from typer.testing import CliRunner

from endive.cli.report import report
from endive.errors import ResultError
from endive.report.page import write_report
from tests.report.builder import BASELINE, BIG, CLOSED, SCALE, SCALES_MS, Grid, write_results

T_95 = {2: 12.7062, 3: 4.30265}
"""97.5 % quantile of Student's t for so many seeds, from a table."""


class Page(HTMLParser):
    """What a browser makes of the page: elements by tag, and the text of some."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "input", "br"}:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self._open:
            self.texts[tag][-1] += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def document(self) -> dict[str, Any]:
        """The data and charts that the page carries."""
        place = self.source.index('<script type="application/json" id="report">')
        start = self.source.index(">", place) + 1
        document: dict[str, Any] = json.loads(self.source[start : self.source.index("</script>", start)])
        return document


@pytest.fixture(scope="module")
def page(directory: Path) -> Page:
    return Page(directory / "report.html")


def query(sql: str) -> list[tuple[Any, ...]]:
    """Ask DuckDB, which knows nothing of Endive."""
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


def points_of(page: Page, group: str) -> dict[str, list[Any]]:
    (points,) = [data["points"] for name, data in page.document["groups"].items() if name.endswith(f"-{group}")]
    columns: dict[str, list[Any]] = points
    return columns


# Figures.


@pytest.mark.parametrize(
    "metric",
    ["success", "offered_per_s", "committed_per_s", "all_p50_ms", "all_p999_ms", "time_conflict_io_ms"],
)
@pytest.mark.parametrize("group", ["provider_tables", "baseline", "closed"])
def test_means_and_intervals_are_those_that_duckdb_computes_from_the_runs(
    directory: Path, page: Page, group: str, metric: str
) -> None:
    rows = query(
        f"""select experiment, avg({metric}) as mean, stddev_samp({metric}) / sqrt(count({metric})) as error,
                   count({metric}) as seeds
            from '{directory}/measures/runs.parquet' where family = '{group}' and status = 'done'
            group by experiment"""  # noqa: S608
    )
    points = points_of(page, group)
    shown = dict(zip(points["experiment"], zip(points[metric], points[f"{metric}_ci"], strict=True), strict=True))

    assert len(rows) == len(shown)
    for experiment, mean, error, seeds in rows:
        assert shown[experiment][0] == pytest.approx(mean, rel=1e-5)
        assert shown[experiment][1] == pytest.approx(T_95[seeds] * error, rel=1e-2)


def test_the_sustainable_throughput_in_the_table_is_that_of_duckdb(directory: Path, page: Page) -> None:
    best = query(
        f"""with points as (
                select "storage.provider" as provider, "catalog.num_tables" as tables, "{SCALE}" as scale,
                       avg(success) as success, avg(committed_per_s) as committed
                from '{directory}/measures/runs.parquet' where family = 'provider_tables' and status = 'done'
                group by all),
            failing as (select provider, tables, max(scale) as scale from points where success < 0.95 group by all)
            select provider, tables, arg_min(committed, points.scale)
            from points left join failing using (provider, tables)
            where failing.scale is null or points.scale > failing.scale group by all"""  # noqa: S608
    )

    assert len(best) == 9
    for provider, tables, committed in best:
        name = f"{provider} · {tables} table{'' if tables == 1 else 's'}"
        row = re.search(rf'<th scope="row">{re.escape(name)}</th>\s*<td class="n" data-v="([^"]+)">', page.source)
        assert row is not None
        assert float(row[1]) == pytest.approx(committed, rel=1e-5)


def test_every_experiment_is_in_the_page_once(directory: Path, page: Page) -> None:
    for group, count in query(
        f"select family, count(*) from '{directory}/measures/experiments.parquet' group by all"  # noqa: S608
    ):
        experiments = points_of(page, group)["experiment"]
        assert len(experiments) == len(set(experiments)) == count


# The page as a document.


def test_nothing_is_loaded_from_elsewhere(page: Page) -> None:
    sources = [
        value
        for tag, attributes in page.elements
        for name, value in attributes.items()
        if name in {"src", "srcset"} or (name == "href" and tag != "a")
    ]

    assert sources == ["data:,"]
    assert all((attributes.get("href") or "#").startswith("#") for tag, attributes in page.elements if tag == "a")
    assert "default-src 'none'" in page.source
    assert page.source.count("window.vegaEmbed") == 1


def test_headings_are_in_order_and_links_lead_somewhere(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(ids) == len(set(ids))
    targets = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert {(target or "").removeprefix("#") for target in targets} <= set(ids)


def test_every_chart_comes_with_its_configuration(page: Page, directory: Path) -> None:
    about = json.loads((directory / "about.json").read_text(encoding="utf-8"))
    behind = [text for text in page.texts["details"] if "Definitions and configuration" in text]

    assert len(behind) == page.count("figure") == len(page.document["charts"])
    for text in behind:
        assert any(group["base"] in text and group["sweep"] in text for group in about["families"])
        assert "endive 0.1.0 (abc1234)" in text
        assert "iceberg" in text
        assert "measured" in text
        assert "1, 2, 3" in text


def test_failed_runs_are_listed_with_their_messages(page: Page) -> None:
    (failed,) = [text for text in page.texts["details"] if "Failed runs and their messages" in text]

    assert 'failed: retry limit <b>3</b> is "wrong"' in failed
    assert 'failed: retry limit <b>4</b> is "wrong"' in failed


EVIL = "</script><script>alert(1)</script> \"quoted\" 'single' & <b>"


def test_names_are_text_and_never_markup(tmp_path: Path, directory: Path) -> None:
    grid = Grid(EVIL, {"storage.provider": ("s3", EVIL), SCALE: SCALES_MS[::4]}, EVIL)
    page = Page(Path(write_report(write_results(tmp_path, [grid], seeds=(1, 2), title=EVIL))))

    assert page.count("script") == Page(directory / "report.html").count("script")
    assert page.count("b") == len(re.findall(r"<b>", (directory / "report.html").read_text(encoding="utf-8"))) // 3
    assert page.texts["h1"] == [EVIL]
    assert html.escape(EVIL, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page.source


@pytest.mark.slow
def test_the_page_of_the_published_suite_stays_small(tmp_path: Path) -> None:
    rest = Grid("tables", {"catalog.num_tables": tuple(range(1, 72)), SCALE: SCALES_MS})
    path = Path(write_report(write_results(tmp_path, [BIG, rest], seeds=(1, 2))))

    assert len(BIG.experiments) + len(rest.experiments) == 1610
    assert path.stat().st_size < 4_000_000


# The command.


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command()(report)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output, result.exception


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.pipeline.consolidate.is_current", lambda _: True)


@pytest.mark.usefixtures("_measured")
def test_the_command_writes_the_page_and_its_pictures_and_ends_with_the_path(tmp_path: Path) -> None:
    directory = write_results(tmp_path / "sweep", [BASELINE], seeds=(1,))
    code, output, _ = run(
        str(directory), "--out", str(tmp_path / "out" / "mine.html"), "--charts", "svg", "--charts", "png"
    )

    assert code == 0
    assert output.rstrip().endswith(str(tmp_path / "out" / "mine.html"))
    assert (tmp_path / "out" / "mine.html").stat().st_size > 500_000
    assert sorted(path.name for path in (tmp_path / "out" / "charts").iterdir()) == [
        f"baseline-{name}.{form}" for name in ("committed", "latency", "success", "times") for form in ("png", "svg")
    ]


@pytest.mark.usefixtures("_measured")
def test_the_page_is_beside_the_measures_by_default(tmp_path: Path) -> None:
    directory = write_results(tmp_path, [CLOSED], seeds=(1,))

    assert run(str(directory))[0] == 0
    assert (directory / "report.html").is_file()
    assert not (directory / "charts").exists()


def test_a_directory_without_a_sweep_is_named(tmp_path: Path) -> None:
    error = run(str(tmp_path))[2]

    assert isinstance(error, ResultError)
    assert "endive sweep" in str(error)


@pytest.mark.usefixtures("_measured")
def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    directory = write_results(tmp_path / "sweep", [BASELINE], seeds=(1,))
    (tmp_path / "file").touch()
    error = run(str(directory), "--out", str(tmp_path / "file" / "page.html"))[2]

    assert isinstance(error, ResultError)
    assert "choose another --out" in str(error)
