"""`endive report`: the results of a sweep as an HTML page."""

import json
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from endive.cli.console import JsonOption, errors, output
from endive.cli.sweep import Endpoint
from endive.errors import ResultError
from endive.pipeline.directory import ABOUT, SweepDirectory
from endive.pipeline.results import SweepResults
from endive.report import Picture


def report(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL", help="A directory that `endive sweep` has written, here or on a bucket; or a catalog."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="The page; default: `DIR/report.html`, or `SWEEP.html` for a catalog."
        ),
    ] = None,
    charts: Annotated[
        list[Picture] | None,
        typer.Option("--charts", help="Also write each chart as a picture, to `charts/`; may be repeated."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="NAME", help="Which sweep of a catalog; default: the most recent."),
    ] = None,
    endpoint: Endpoint = None,
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
    saved = SweepDirectory(directory, endpoint)
    if "://" not in directory or saved.read(ABOUT) is not None:
        _report(saved, out, charts or (), as_json)
        return
    from endive.pipeline.catalog_tables import fetch, sweeps_in  # noqa: PLC0415 - PyIceberg takes a second to load

    name = sweep or next(iter(sweeps_in(directory)), "")
    with TemporaryDirectory(prefix="endive-") as place:
        fetched = SweepDirectory(place)
        fetch(directory, name, fetched)
        _report(fetched, out or f"{name}.html", charts or (), as_json)


def _report(directory: SweepDirectory, out: str | None, charts: Sequence[Picture], as_json: bool) -> None:
    if directory.read(ABOUT) is None:
        raise ResultError(str(directory), "holds no sweep", "name a directory that `endive sweep` has written")
    _update_measures(directory)
    errors.print("drawing charts", markup=False)
    results = SweepResults(directory)
    page = results.report(out, charts)
    if as_json:
        output.print_json(json.dumps({**results.to_document(), "report": page}))
    else:
        output.print(f"report: {page}", soft_wrap=True, markup=False)


def _update_measures(directory: SweepDirectory) -> None:
    """Compute the measures if they are missing or older than the runs."""
    from endive.pipeline.consolidate import consolidate, is_current  # noqa: PLC0415 - PySpark takes a second to load

    if is_current(directory):
        return
    if SweepResults(directory).about.get("keep") != "transactions":
        errors.print("computing measures", markup=False)
        consolidate(directory, None)
        return
    from endive.spark.session import spark_session  # noqa: PLC0415

    errors.print("computing measures: starting Spark", markup=False)
    with spark_session() as spark:
        consolidate(directory, spark)
