"""The results of a sweep: its measures as Arrow tables, its failed runs, and its report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from endive.drivers.directory import Directory
from endive.errors import ResultError, SparkUnavailableError
from endive.report import Picture
from endive.report.formatting import NONE, label_of, number, title_of
from endive.report.reading import read_measure
from endive.sim.results.display import Grid
from endive.sim.results.labels import TRUST, explained, mark_for
from endive.sim.results.prices import NAME as DOLLARS
from endive.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Measure = Literal["runs", "experiments", "curves", "breakdown", "counters"]

HEADINGS = ("sustainable load", "commits/s", "p99 ms", "$/million", "saturates at", "peak commits/s")
"""Columns of the table of series; `series_cells` gives their values."""


@dataclass(frozen=True, repr=False)
class SweepResults:
    """A sweep that has run. `SweepResults("sweeps/demo")` opens an earlier one, on this machine or on a bucket."""

    directory: Directory | Path | str

    @property
    def files(self) -> Directory:
        """The files of the sweep."""
        return Directory.at(self.directory)

    def measures(self, table: Measure = "curves") -> pa.Table:
        """Return `runs`, `experiments` (means over seeds) or `curves` (one row per series) as an Arrow table.

        `breakdown` has the means over seeds of each class of transactions and of the hottest tables,
        `counters` those of requests and outcomes of the whole run.

        `.to_pandas()` or `polars.from_arrow` convert it. `ResultError` if the measures have not been computed.
        """
        return read_measure(self.files, f"measures/{table}.parquet")

    def frame(self, table: Measure = "curves") -> "DataFrame":
        """Return a measure as a frame of the Spark session that this process has."""
        from endive.spark.using import running_session  # noqa: PLC0415 - PySpark takes a second to load

        spark = running_session()
        if spark is None:
            raise SparkUnavailableError(
                "this process has no Spark session", "start one, such as with `spark_session()`"
            )
        return spark.createDataFrame(self.measures(table))

    @property
    def about(self) -> Mapping[str, Any]:
        """The sweep's title, groups, seeds and success target, as in `about.json`."""
        try:
            return dict(json.loads(self.files.read("about.json") or b"null"))
        except (ValueError, TypeError) as error:
            remedy = "name a directory that `endive sweep` has written"
            raise ResultError(self.files.place("about.json"), "cannot be read", remedy) from error

    @property
    def groups(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of `curves` by the title of their experiment group."""
        return self.groups_at(None)

    def groups_at(self, success: float | None) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of `curves` by the title of their group, for another success target; None: the sweep's."""
        rows = (self.measures("curves") if success is None else self._curves_at(success)).to_pylist()
        titles = {group["name"]: group["title"] for group in self.about["families"]}
        return {title: [row for row in rows if row["family"] == name] for name, title in titles.items()}

    def _curves_at(self, success: float) -> pa.Table:
        from endive.pipeline.curves import curves_of  # noqa: PLC0415 - PySpark takes a second to load
        from endive.pipeline.directory import SweepDirectory  # noqa: PLC0415
        from endive.pipeline.saved_sweep import SavedSweep  # noqa: PLC0415

        groups = [{**group, "success_target": success} for group in self.about["families"]]
        about = {**self.about, "success_target": success, "families": groups}
        series = curves_of(self.measures("experiments"), about)
        return SavedSweep(SweepDirectory.at(self.files)).in_order(series)

    @property
    def catalogs(self) -> dict[str, list[str]]:
        """The catalogs of each group, by its title: preset or type, and granularity. Empty: an older version ran it."""
        return {group["title"]: group.get("catalogs", []) for group in self.about["families"]}

    @property
    def captions(self) -> dict[str, str]:
        """The title of each group with its catalogs, by its title."""
        return {title: f"{title}: {'; '.join(names)}" if names else title for title, names in self.catalogs.items()}

    @property
    def footnotes(self) -> list[str]:
        """A line for each part of the model that was not checked; figures that rest on one are marked."""
        return explained(group.get("trust", {}) for group in self.about["families"])

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The runs that failed or crashed: group, experiment, seed, status and message."""
        columns = ["family", "experiment", "seed", "status", "message"]
        return [row for row in self.measures("runs").select(columns).to_pylist() if row["status"] != "done"]

    def report(self, out: Path | str | None = None, pictures: Sequence[Picture] = ()) -> str:
        """Write the HTML report, by default `report.html` in the sweep's directory; return its path or URL."""
        from endive.report.page import write_report  # noqa: PLC0415 - Altair takes a second to load

        return write_report(self.files, out, pictures)

    def to_document(self) -> dict[str, Any]:
        """Return the series of each group and the failed runs, for JSON."""
        return {
            "directory": str(self.files),
            "title": self.about["title"],
            "success_target": self.about["success_target"],
            "runs": len(self.measures("runs")),
            "failures": self.failures,
            "groups": self.group_documents(),
        }

    def group_documents(self, success: float | None = None) -> list[dict[str, Any]]:
        """Return title, catalogs, series and labels of trust of each group, for JSON.

        `success`: for another success target.
        """
        labels = [group.get("trust", {}) for group in self.about["families"]]
        rows = self.groups_at(success).items()
        return [
            {"title": title, "catalogs": self.catalogs[title], "series": series, "trust": trust}
            for (title, series), trust in zip(rows, labels, strict=True)
        ]

    def __repr__(self) -> str:
        captions = self.captions
        blocks = [_text_table(captions[title], rows) for title, rows in self.groups.items()]
        return "\n\n".join([*blocks, "\n".join([*self.footnotes, self._footer()])])

    def _repr_html_(self) -> str:
        captions = self.captions
        blocks = [_html_table(captions[title], rows) for title, rows in self.groups.items()]
        notes = [f"<p>{escape(note)}</p>" for note in (*self.footnotes, self._footer())]
        return "\n".join([*blocks, *notes])

    def _footer(self) -> str:
        runs, failed = len(self.measures("runs")), len(self.failures)
        return f"{counted(runs, 'run')}, {failed} failed; measures in {self.files.place('measures')}"


def series_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the values of `HEADINGS` for one series.

    `≥ 16`: every load up to the highest, 16, reaches the success target. `< 2`: the lowest load, 2, misses it. `†`: the
    figure rests on a part of the model that was not checked.
    """
    load, fails = row["usable_load"], row["fails_from_load"]
    if load is None:
        sustainable = NONE if fails is None else f"< {label_of(fails)}"
    else:
        sustainable = f"≥ {label_of(load)}" if fails is None else label_of(load)
    figures = [number(row.get(f"usable_{name}")) for name in ("committed_per_s", "p99_ms", DOLLARS)]
    cells = [sustainable, *figures, label_of(row["saturation_load"]), number(row["peak_committed_per_s"])]
    mark = mark_for(row.get(TRUST))
    return [cell if cell == NONE else cell + mark for cell in cells]


def parameters_of(row: Mapping[str, Any]) -> str:
    """Return all parameters of a series, such as `Provider s3, Tables 10`."""
    return ", ".join(f"{title_of(key)} {value}" for key, value in row.items() if "." in key and value is not None)


def _text_table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    grid = Grid(("", *HEADINGS), [(row["series"] or "", *series_cells(row)) for row in rows])
    return f"{title}\n{grid.text()}"


def _html_table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in ("", *HEADINGS))
    body = "".join(
        f"<tr><th title='{escape(parameters_of(row), quote=True)}'>{escape(row['series'] or '')}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in series_cells(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
