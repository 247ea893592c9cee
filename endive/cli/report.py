"""`endive report`: the results of a sweep as a page."""

from pathlib import Path
from typing import Annotated

import typer

from endive.cli.console import errors, output
from endive.errors import ResultError
from endive.report import Picture


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that `endive sweep` has written.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The page; `DIR/report.html` if not given.")
    ] = None,
    charts: Annotated[
        list[Picture] | None,
        typer.Option("--charts", help="Write each chart as a picture too, to `charts/`; may be repeated."),
    ] = None,
) -> None:
    """Show the results of a sweep: one HTML page with charts that works offline.

    The page has latency against throughput, success against load, heat maps, usable throughput and where the time goes,
    for each family of experiments, with the configuration behind every chart.

    For example:

    `endive report experiments/sweep`

    `endive report experiments/sweep --charts svg --charts png`
    """
    if not (directory / "about.json").is_file():
        raise ResultError(str(directory), "holds no sweep", "name a directory that `endive sweep` has written")
    _bring_up_to_date(directory)
    errors.print("drawing", markup=False)
    from endive.report.page import write_report  # noqa: PLC0415 - Altair takes a second to load

    page = write_report(directory, out, charts or ())
    output.print(f"a page to look at: {page.resolve()}", soft_wrap=True, markup=False)


def _bring_up_to_date(directory: Path) -> None:
    """Compute the measures if they are missing or older than the runs."""
    from endive.pipeline.frames import consolidate, is_current  # noqa: PLC0415 - PySpark takes a second to load

    if not is_current(directory):
        from endive.pipeline.session import spark_session  # noqa: PLC0415

        errors.print("computing measures: starting Spark", markup=False)
        with spark_session() as spark:
            consolidate(directory, spark)
