"""The report page: one self-contained HTML file that works without a network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from endive.drivers.directory import Directory
from endive.report import Picture
from endive.report.by_class import Breakdown, breakdown_of
from endive.report.charts import draw
from endive.report.drawing import Drawing
from endive.report.formatting import (
    NONE,
    capital,
    is_missing,
    label_of,
    moment,
    number,
    plural,
    share,
    title_of,
    with_interval,
)
from endive.report.groups import ReportGroup, groups_of
from endive.report.headline import Headline, headline_of
from endive.report.metrics import DEFINITIONS, Definition
from endive.report.reading import Results, read_results
from endive.report.specs import DATA, columns_of, script_json, spec_of
from endive.report.static import VEGA_LITE, file_name, pictures_of
from endive.report.theme import CONFIG, DARK, LIGHT, css_variables
from endive.report.trust import mark_of_row, notes_of

DOLLARS = "usable_dollars_per_million_commits"
FAILED_MAX = 200
"""At most this many failed runs are listed."""
FILTER_FROM = 12
"""A table with more rows than this can be filtered."""


@dataclass(frozen=True)
class Section:
    """One experiment group in the page."""

    id: str
    group: ReportGroup
    drawings: tuple[Drawing, ...]
    headline: Headline
    facts: tuple[tuple[str, str], ...]
    """All conditions under which the metrics hold."""
    remarks: tuple[str, ...]
    """Limitations of the results."""
    breakdown: Breakdown
    """Metrics of each class, and of the hottest tables."""

    @property
    def brief(self) -> list[tuple[str, str]]:
        """The most important facts, in short."""
        return [(name, value) for name, value in self.facts if name not in {"Version", "Computed", "Sweep file"}]

    def chart_id(self, drawing: Drawing) -> str:
        """Return the name of a chart that is unique in the page."""
        return f"{self.id}-{drawing.name}"


def write_report(place: Directory | Path | str, out: Path | str | None = None, pictures: Sequence[Picture] = ()) -> str:
    """Write the page of the results in a directory, and each chart as a picture if asked; return the page's place.

    The page is `report.html` in that directory, or `NAME.html` here if it is in memory, unless `out` says otherwise;
    pictures go to `charts/` beside it.
    """
    directory = Directory.at(place)
    results = read_results(directory)
    if out is None and str(directory).startswith("memory://"):
        out = f"{directory.name}.html"
    target, name = (directory, "report.html") if out is None else _parent(out)
    sections = _sections(results)
    target.write(name, render(results, sections).encode())
    for section in sections if pictures else ():
        for drawing in section.drawings:
            for file, body in pictures_of(section.group, drawing, pictures):
                target.write(f"charts/{file}", body)
    return target.place(name)


def _parent(out: Path | str) -> tuple[Directory, str]:
    """Return the directory of a file, and the file's name in it."""
    whole = Directory(out)
    return Directory(str(whole).rpartition("/")[0] or "/"), whole.name


def render(results: Results, sections: tuple[Section, ...]) -> str:
    """Return the page of these results."""
    failed = results.runs[results.runs["status"] != "done"].sort_values(["family", "experiment", "seed"])
    return _environment().get_template("page.html.jinja").render(
        about=results.about,
        sections=sections,
        rows=[_row(section, row) for section in sections for row in _series_of(section.group)],
        filter_from=FILTER_FROM,
        failed=failed.head(FAILED_MAX).to_dict("records"),
        failed_more=max(0, len(failed) - FAILED_MAX),
        runs=len(results.runs),
        failed_count=len(failed),
        total_experiments=sum(len(section.group.points) for section in sections),
        load_unit=_load_unit(sections),
        targets=_targets(sections),
        definitions=_definitions,
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
        library=_library(),
        document=script_json(_document(sections)),
    )  # fmt: skip


def _sections(results: Results) -> tuple[Section, ...]:
    return tuple(_section(results, group, place) for place, group in enumerate(groups_of(results)))


def _section(results: Results, group: ReportGroup, place: int) -> Section:
    return Section(
        id=f"f{place}-{file_name(group.about.name)}",
        group=group,
        drawings=draw(group),
        headline=headline_of(group),
        facts=_facts(results, group),
        remarks=tuple(_remarks(group)),
        breakdown=breakdown_of(results, group),
    )


def _load_unit(sections: tuple[Section, ...]) -> str:
    units = {section.group.about.load_unit for section in sections if section.group.axis.is_load}
    return units.pop() if len(units) == 1 else ""


def _targets(sections: tuple[Section, ...]) -> str:
    return " or ".join(f"{100 * target:g} %" for target in dict.fromkeys(one.group.success_target for one in sections))


def _remarks(group: ReportGroup) -> Iterator[str]:
    yield from notes_of(group)
    if not group.has_metrics:
        yield "No run of this experiment group finished, so there are no charts."
    elif not group.has_intervals:
        yield "There is one seed, so the metrics have no confidence intervals."
    if group.drifting:
        yield (
            f"In {plural(group.drifting, 'experiment')} of {len(group.points):,} the window is not stationary:"
            " metrics there depend on the length of the run. Beyond saturation this is expected."
        )


def _facts(results: Results, group: ReportGroup) -> tuple[tuple[str, str], ...]:
    """Return the conditions under which a group's metrics hold."""
    context = [(title_of(key), ", ".join(labels)) for key, labels in group.context.items() if labels]
    seeds = ", ".join(map(str, group.about.seeds or results.about.seeds))
    return (
        ("Experiments", f"{len(group.points):,}"),
        ("Seeds", seeds),
        *context,
        *([("Catalog", "; ".join(group.about.catalogs))] if group.about.catalogs else []),
        ("Version", results.about.version),
        ("Computed", moment(results.about.created)),
        ("Sweep file", group.about.source),
    )


def _definitions(drawing: Drawing) -> list[Definition]:
    return [DEFINITIONS[name] for name in drawing.measures]


def _series_of(group: ReportGroup) -> list[dict[Any, Any]]:
    """Return the rows of a group in the table of series; none if the offered load does not vary."""
    return group.series.to_dict("records") if group.axis.is_load else []


def _row(section: Section, row: dict[Any, Any]) -> dict[str, Any]:
    """Return one row of the table: for each column the text, and what it is sorted by."""
    least = "≥ " if _is(row["usable_load"]) and not _is(row["fails_from_load"]) else ""
    throughput = with_interval(row["usable_committed_per_s"], row["usable_committed_per_s_ci"])
    has_metrics, mark = _is(row["peak_committed_per_s"]), mark_of_row(section.group, row)
    sustainable = f"{least}{throughput}" if _is(row["usable_load"]) else "none" if has_metrics else NONE
    saturates = label_of(row["saturation_load"]) if _is(row["saturation_load"]) or not has_metrics else "never"
    return {
        "section": section.id,
        "group": section.group.title,
        "series": row["series"],
        "cells": [
            (text + mark * (text != NONE), value)
            for text, value in (
                (sustainable, row["usable_committed_per_s"]),
                (label_of(row["usable_load"]), row["usable_load"]),
                (number(row["usable_p99_ms"]), row["usable_p99_ms"]),
                (share(row["usable_overhead"]), row["usable_overhead"]),
                (number(row[DOLLARS]), row[DOLLARS]),
                (saturates, row["saturation_load"]),
                (number(row["peak_committed_per_s"]), row["peak_committed_per_s"]),
            )
        ],
    }


def _is(value: object) -> bool:
    return not is_missing(value)


def _document(sections: tuple[Section, ...]) -> dict[str, Any]:
    """Return the data and charts of the page: each group's data once, by columns."""
    return {
        "config": CONFIG,
        "groups": {
            section.id: {name: columns_of(getattr(section.group, name)) for name in DATA}
            for section in sections
            if section.drawings
        },
        "charts": {
            section.chart_id(drawing): {"group": section.id, "spec": spec_of(drawing)}
            for section in sections
            for drawing in section.drawings
        },
    }


@cache
def _library() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return bundle.replace("</script", "<\\/script")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("endive.report", "template"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "plural": plural, "moment": moment, "capital": capital}
    environment.globals["sort_value"] = lambda value: "" if not _is(value) else f"{value}"
    return environment
