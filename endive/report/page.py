"""The page: one HTML file with everything in it, so that it works without a network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from endive.files import make_directory, write_durably
from endive.report import Picture
from endive.report.charts import draw
from endive.report.drawing import Drawing
from endive.report.families import Family, families_of
from endive.report.headline import Headline, headline_of
from endive.report.load import Results, load
from endive.report.measures import DEFINITIONS, Definition
from endive.report.specs import DATA, columns_of, script_json, spec_of
from endive.report.static import VEGA_LITE, file_name, write_pictures
from endive.report.theme import CONFIG, DARK, LIGHT, css_variables
from endive.report.words import NONE, capital, is_missing, moment, number, plural, share, title_of, with_interval

FAILED_MAX = 200
"""So many failed runs are listed; more say the same again."""
FILTER_FROM = 12
"""A table with more rows than this can be filtered."""


@dataclass(frozen=True)
class Section:
    """One family in the page."""

    id: str
    family: Family
    drawings: tuple[Drawing, ...]
    headline: Headline
    facts: tuple[tuple[str, str], ...]
    """Conditions under which the figures hold, all of them."""
    remarks: tuple[str, ...]
    """What a reader should know before trusting the charts."""

    @property
    def brief(self) -> list[tuple[str, str]]:
        """The most important facts, where they are short."""
        return [(name, value) for name, value in self.facts if name not in {"Version", "Computed", "Sweep file"}]

    def chart_id(self, drawing: Drawing) -> str:
        """Return the name of a chart that is unique in the page."""
        return f"{self.id}-{drawing.name}"


def write_report(directory: Path, out: Path | None = None, pictures: Sequence[Picture] = ()) -> Path:
    """Write the page of the results in `directory`, and each chart as a picture if asked; return the page's path.

    The page is `report.html` in that directory unless `out` says otherwise; pictures go to `charts/` beside it.
    """
    results = load(directory)
    page = out or directory / "report.html"
    make_directory(page.parent)
    sections = _sections(results)
    text = render(results, sections)
    write_durably(page, lambda part: part.write_text(text, encoding="utf-8"))
    for section in sections if pictures else ():
        for drawing in section.drawings:
            write_pictures(page.parent / "charts", section.family, drawing, pictures)
    return page


def render(results: Results, sections: tuple[Section, ...]) -> str:
    """Return the page of these results."""
    failed = results.runs[results.runs["status"] != "done"].sort_values(["family", "experiment", "seed"])
    return _environment().get_template("page.html.jinja").render(
        about=results.about,
        sections=sections,
        rows=[_row(section, row) for section in sections for row in _series_of(section.family)],
        filter_from=FILTER_FROM,
        failed=failed.head(FAILED_MAX).to_dict("records"),
        failed_more=max(0, len(failed) - FAILED_MAX),
        runs=len(results.runs),
        failed_count=len(failed),
        total_experiments=sum(len(section.family.points) for section in sections),
        load_unit=_load_unit(sections),
        definitions=_definitions,
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
        library=_library(),
        document=script_json(_document(sections)),
    )  # fmt: skip


def _sections(results: Results) -> tuple[Section, ...]:
    return tuple(_section(results, family, place) for place, family in enumerate(families_of(results)))


def _section(results: Results, family: Family, place: int) -> Section:
    return Section(
        id=f"f{place}-{file_name(family.about.name)}",
        family=family,
        drawings=draw(family),
        headline=headline_of(family),
        facts=_facts(results, family),
        remarks=tuple(_remarks(family)),
    )


def _load_unit(sections: tuple[Section, ...]) -> str:
    units = {section.family.about.load_unit for section in sections if section.family.axis.is_load}
    return units.pop() if len(units) == 1 else ""


def _remarks(family: Family) -> Iterator[str]:
    if not family.has_figures:
        yield "No run of this family finished, so there are no charts."
    elif not family.has_intervals:
        yield "There is one seed, so the figures have no confidence intervals."
    if family.drifting:
        yield (
            f"In {plural(family.drifting, 'experiment')} of {len(family.points):,} the window is not stationary:"
            " figures there change with the length of the run. Beyond saturation that is to be expected."
        )


def _facts(results: Results, family: Family) -> tuple[tuple[str, str], ...]:
    """Return the conditions under which a family's figures hold."""
    context = [(title_of(key), ", ".join(labels)) for key, labels in family.context.items() if labels]
    seeds = ", ".join(map(str, family.about.seeds or results.about.seeds))
    return (
        ("Experiments", f"{len(family.points):,}"),
        ("Seeds", seeds),
        *context,
        ("Version", results.about.version),
        ("Computed", moment(results.about.created)),
        ("Sweep file", family.about.source),
    )


def _definitions(drawing: Drawing) -> list[Definition]:
    return [DEFINITIONS[name] for name in drawing.measures]


def _series_of(family: Family) -> list[dict[Any, Any]]:
    """Return the rows of a family in the table of series; where no load varies there is nothing to say."""
    return family.series.to_dict("records") if family.axis.is_load else []


def _row(section: Section, row: dict[Any, Any]) -> dict[str, Any]:
    """Return one row of the table: for each column the text, and what it is sorted by."""
    least = "≥ " if _is(row["usable_load"]) and not _is(row["fails_from_load"]) else ""
    figure = with_interval(row["usable_committed_per_s"], row["usable_committed_per_s_ci"])
    has_figures = _is(row["peak_committed_per_s"])
    usable = f"{least}{figure}" if _is(row["usable_load"]) else "none" if has_figures else NONE
    saturates = number(row["saturation_load"]) if _is(row["saturation_load"]) or not has_figures else "never"
    return {
        "section": section.id,
        "family": section.family.title,
        "series": row["series"],
        "cells": [
            (usable, row["usable_committed_per_s"]),
            (number(row["usable_load"]), row["usable_load"]),
            (number(row["usable_p99_ms"]), row["usable_p99_ms"]),
            (share(row["usable_overhead"]), row["usable_overhead"]),
            (saturates, row["saturation_load"]),
            (number(row["peak_committed_per_s"]), row["peak_committed_per_s"]),
        ],
    }


def _is(value: object) -> bool:
    return not is_missing(value)


def _document(sections: tuple[Section, ...]) -> dict[str, Any]:
    """Return the data and charts of the page: each family's data once, by columns."""
    return {
        "config": CONFIG,
        "families": {
            section.id: {name: columns_of(getattr(section.family, name)) for name in DATA}
            for section in sections
            if section.drawings
        },
        "charts": {
            section.chart_id(drawing): {"family": section.id, "spec": spec_of(drawing)}
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
