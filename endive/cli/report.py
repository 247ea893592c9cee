"""`endive report`: the results of a sweep as an HTML page."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from endive.cli.console import JsonOption, errors, output
from endive.errors import ResultError
from endive.pipeline.results import SweepResults
from endive.report import Picture


def report(
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR|URL", help="A directory that `endive sweep` has written, or a catalog's URL."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The page; default: `DIR/report.html`, or `SWEEP.html` for a URL."),
    ] = None,
    charts: Annotated[
        list[Picture] | None,
        typer.Option("--charts", help="Also write each chart as a picture, to `charts/`; may be repeated."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="NAME", help="Which sweep of a catalog; default: the most recent."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the results of a sweep as one HTML page with charts that works offline.

    For each experiment group the page shows latency against throughput, success against offered load, heat maps,
    sustainable throughput and where the time goes, with the configuration behind every chart. Results that `endive
    sweep --catalog` has written to a catalog are fetched first.

    For example:

    `endive report sweeps/small`

    `endive report sweeps/small --charts svg --charts png`

    `endive report s3://bucket/lake --sweep published`
    """
    if "://" not in directory:
        _report(Path(directory), out, charts or (), as_json)
        return
    from endive.pipeline.catalog_tables import fetch, sweeps_in  # noqa: PLC0415 - PyIceberg takes a second to load

    name = sweep or next(iter(sweeps_in(directory)), "")
    with TemporaryDirectory(prefix="endive-") as fetched:
        fetch(directory, name, Path(fetched))
        _report(Path(fetched), out or Path(f"{name}.html"), charts or (), as_json)


def _report(directory: Path, out: Path | None, charts: Sequence[Picture], as_json: bool) -> None:
    if not (directory / "about.json").is_file():
        raise ResultError(str(directory), "holds no sweep", "name a directory that `endive sweep` has written")
    _update_measures(directory)
    errors.print("drawing charts", markup=False)
    results = SweepResults(directory)
    page = results.report(out, charts).resolve()
    if as_json:
        output.print_json(json.dumps({**results.to_document(), "report": str(page)}))
    else:
        output.print(f"report: {page}", soft_wrap=True, markup=False)


def _update_measures(directory: Path) -> None:
    """Compute the measures if they are missing or older than the runs."""
    from endive.pipeline.consolidate import consolidate, is_current  # noqa: PLC0415 - PySpark takes a second to load

    if not is_current(directory):
        from endive.spark.session import spark_session  # noqa: PLC0415

        errors.print("computing measures: starting Spark", markup=False)
        with spark_session() as spark:
            consolidate(directory, spark)
