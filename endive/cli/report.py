"""`endive report`: the results of a sweep as an HTML page."""

import json
from pathlib import Path
from typing import Annotated

import typer

from endive.cli.console import JsonOption, errors, output, shown
from endive.cli.sweep import Endpoint
from endive.pipeline.experiments import has_experiments
from endive.pipeline.opening import open_results
from endive.report import Picture


def report(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL",
            help="A directory that `endive sweep` has written, here or on a bucket; the experiments of `endive run`; "
            "or a catalog.",
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

    `endive report experiments` also writes every transaction of all experiments to `experiments/consolidated.parquet`.

    `endive report sweeps/small --charts svg --charts png`

    `endive report s3://bucket/lake --sweep published`
    """
    errors.print("reading results", markup=False)
    results = open_results(directory, sweep, endpoint)
    errors.print("drawing charts", markup=False)
    local = Path(directory)
    page = results.report(out or (local / "report.html" if has_experiments(local) else None), charts or ())
    if as_json:
        output.print_json(json.dumps({**results.to_document(), "report": page}))
    else:
        output.print(f"report: {shown(page)}", soft_wrap=True, markup=False)
