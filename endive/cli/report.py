"""`endive report`: the results of a sweep as a page."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from endive.cli.console import errors, output
from endive.errors import ResultError
from endive.report import Picture


def report(
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR|URL", help="A directory that `endive sweep` has written, or a catalog's URL."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The page; if not given, `DIR/report.html` or `SWEEP.html`."),
    ] = None,
    charts: Annotated[
        list[Picture] | None,
        typer.Option("--charts", help="Write each chart as a picture too, to `charts/`; may be repeated."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="NAME", help="Which sweep of a catalog; the last one if not given."),
    ] = None,
) -> None:
    """Show the results of a sweep: one HTML page with charts that works offline.

    The page has latency against throughput, success against load, heat maps, usable throughput and where the time goes,
    for each family of experiments, with the configuration behind every chart. Results in a catalog, where
    `endive sweep --into` has put them, are fetched first.

    For example:

    `endive report experiments/sweep`

    `endive report experiments/sweep --charts svg --charts png`

    `endive report s3://bucket/lake --sweep published`
    """
    if "://" not in directory:
        _report(Path(directory), out, charts or ())
        return
    from endive.pipeline.catalog_tables import fetch, sweeps_in  # noqa: PLC0415 - PyIceberg takes a second to load

    name = sweep or next(iter(sweeps_in(directory)), "")
    with TemporaryDirectory(prefix="endive-") as fetched:
        fetch(directory, name, Path(fetched))
        _report(Path(fetched), out or Path(f"{name}.html"), charts or ())


def _report(directory: Path, out: Path | None, charts: Sequence[Picture]) -> None:
    if not (directory / "about.json").is_file():
        raise ResultError(str(directory), "holds no sweep", "name a directory that `endive sweep` has written")
    _bring_up_to_date(directory)
    errors.print("drawing", markup=False)
    from endive.report.page import write_report  # noqa: PLC0415 - Altair takes a second to load

    page = write_report(directory, out, charts)
    output.print(f"a page to look at: {page.resolve()}", soft_wrap=True, markup=False)


def _bring_up_to_date(directory: Path) -> None:
    """Compute the measures if they are missing or older than the runs."""
    from endive.pipeline.frames import consolidate, is_current  # noqa: PLC0415 - PySpark takes a second to load

    if not is_current(directory):
        from endive.spark.session import spark_session  # noqa: PLC0415

        errors.print("computing measures: starting Spark", markup=False)
        with spark_session() as spark:
            consolidate(directory, spark)
