"""`endive sweep`: groups of experiments on Spark, from the files to the report."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from endive.cli.console import (
    MASTERS,
    JsonOption,
    Overrides,
    SettingsOption,
    ShipOption,
    errors,
    output,
    resumable,
    shown,
    warn,
)
from endive.errors import ConfigurationError
from endive.pipeline.plan import Plan
from endive.pipeline.results import HEADINGS, SweepResults, series_cells
from endive.pipeline.sweep import SweepProgress, Target, Where, check_catalog, plan_sweep, run_refined, target_of
from endive.spark.master import cores_here, parse_master
from endive.wording import counted

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help=f"Spark master: {MASTERS}. Default: all cores of this machine.",
    ),
]

Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint", metavar="URL", envvar="ENDIVE_ENDPOINT", help="Address of an S3-compatible server or emulator."
    ),
]

SPARK_S = 20.0
"""Typical time for starting Spark, the measures and the report."""

ROWS_SHOWN = 20
"""Lines of the closing table; the report has all of them."""

FAILURES_SHOWN = 5


def sweep(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Sweep files in TOML; `configs/sweeps/` has examples.")
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="DIR|URL",
            help="Directory of the sweep: a path that every machine sees, `s3://…`, `gs://…` or `az://…`; "
            "default: `sweeps/<name>`.",
        ),
    ] = None,
    master: MasterOption = None,
    endpoint: Endpoint = None,
    settings: SettingsOption = None,
    ship: ShipOption = False,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="URL",
            help="Write the results to tables of this catalog; without `--out` they are there alone.",
        ),
    ] = None,
    into: Annotated[str | None, typer.Option("--into", hidden=True, help="Former name of `--catalog`.")] = None,
    overrides: Overrides = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Check and size the sweep; run nothing.")] = False,
    refine: Annotated[
        int,
        typer.Option(
            "--refine",
            metavar="ROUNDS",
            min=0,
            max=10,
            help="Rounds that add, for each series, the offered load between the sustainable one and the next.",
        ),
    ] = 0,
    clean: Annotated[
        bool, typer.Option("--clean", help="At the end, delete the leftovers of interrupted starts of the sweep.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Run every experiment of a sweep on Spark, find the saturation points, and write the report.

    A sweep file names a base configuration, the keys to vary and the seeds. Several files go into one report.
    Everything is checked before anything runs. To continue an interrupted sweep, repeat the same command: finished runs
    are kept. A changed configuration is another experiment and is run.

    For example:

    `endive sweep configs/sweeps/small.toml`

    `endive sweep configs/sweeps/published/*.toml --out sweeps/published`

    `endive sweep configs/sweeps/published/mix.toml --plan`

    `endive sweep configs/sweeps/small.toml --out s3://bucket/sweeps/small --master spark://host:7077 --ship`

    `endive sweep configs/sweeps/small.toml --catalog s3://bucket/lake`
    """
    cores = parse_master(master).cores or cores_here()
    check_catalog(catalog or into)
    plan = plan_sweep(files, overrides or ())
    for group in plan.groups:
        warn(tuple(f"{group.name}: {warning}" for warning in group.warnings))
    (errors if as_json else output).print(size(plan, cores), soft_wrap=True, markup=False)
    if not plan_only:
        target = target_of(out, _default_name(files), catalog or into, endpoint)
        run_and_show(plan, target, Where(master, spark_settings(settings or ()), ship), report, as_json, refine)
        if clean:
            _clean(target)


def _clean(target: Target) -> None:
    from endive.pipeline.cleaning import clean, clean_tables  # noqa: PLC0415 - PySpark takes a second to load

    directory = target.directory
    if target.is_alone:
        deleted = clean_tables(str(target.catalog), target.name, directory.endpoint)
    else:
        deleted = clean(directory)
    errors.print(f"deleted {counted(len(deleted), 'file')} of interrupted sweeps", markup=False)


def spark_settings(texts: Sequence[str]) -> dict[str, str]:
    """Return Spark settings given as `KEY=VALUE`."""
    wrong = [f"{text!r}: expected KEY=VALUE" for text in texts if "=" not in text or not text.startswith("spark.")]
    if wrong:
        raise ConfigurationError("--conf", wrong)
    return dict(text.split("=", 1) for text in texts)


def _default_name(files: Sequence[str]) -> str:
    return Path(files[0]).stem if len(files) == 1 else Path(files[0]).absolute().parent.name


def size(plan: Plan, cores: int) -> str:
    """Return the size of a sweep in words."""
    seeds = {len(group.seeds) for group in plan.groups}
    times = f" × {counted(seeds.pop(), 'seed')}" if len(seeds) == 1 else ""  # noqa: RUF001 - a multiplication sign
    shared = plan.requested - len(plan.runs)
    twice = f", {shared:,} of them shared between groups and run once" if shared else ""
    about = duration(SPARK_S + plan.cost(plan.runs) / cores)
    experiments, runs = counted(len(plan.experiments), "experiment"), counted(plan.requested, "run")
    return f"{experiments}{times} = {runs}{twice}; about {about}"


def duration(seconds: float) -> str:
    """Return a duration in the largest suitable unit, such as `20 s`, `12 min` or `5.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{float(f'{seconds / 3600:.2g}'):,g} h"


def run_and_show(plan: Plan, target: Target, where: Where, report: bool, as_json: bool, refine: int = 0) -> None:
    """Run a plan with a progress bar; print the series of each group, the failed runs, and the report's path."""
    with resumable(), _progress_bar() as progress:
        results = run_refined(plan, target, where, refine, progress)
    _warn_of_failures(results)
    page = results.report() if report else None
    if as_json:
        output.print_json(json.dumps({**results.to_document(), "report": page}))
        return
    captions = results.captions
    for title, rows in results.groups.items():
        output.print(captions[title], soft_wrap=True, markup=False)
        output.print(_series_table(title, rows))
    for note in results.footnotes:
        output.print(note, soft_wrap=True, markup=False)
    if not target.is_alone:
        output.print(f"measures: {shown(results.files.place('measures'))}", soft_wrap=True, markup=False)
    if page:
        output.print(f"report: {shown(page)}", soft_wrap=True, markup=False)


@contextmanager
def _progress_bar() -> Iterator[Callable[[SweepProgress], None]]:
    """Provide a callback that prints messages, and shows finished runs, their rate and the remaining time."""
    columns = (
        TextColumn("{task.fields[runs]:,} of {task.fields[all]:,} runs"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %, {task.fields[rate]:.1f} runs/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:

        def show(progress: SweepProgress) -> None:
            if progress.is_warning:
                warn((progress.message,))
            elif progress.message:
                errors.print(progress.message, markup=False, soft_wrap=True)
            elif progress.runs_total:
                if not bar.tasks:
                    bar.add_task("", total=1.0, runs=0, all=progress.runs_total, rate=0.0)
                rate = progress.runs / (bar.tasks[0].elapsed or 1.0)
                bar.update(bar.tasks[0].id, completed=progress.share, runs=progress.runs, rate=rate)

        yield show


def _series_table(title: str, rows: Sequence[dict[str, object]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for row in rows[:ROWS_SHOWN]:
        table.add_row(escape(str(row["series"] or title)), *series_cells(row))
    if len(rows) > ROWS_SHOWN:
        table.add_row(f"and {len(rows) - ROWS_SHOWN} more in the report")
    return table


def _warn_of_failures(results: SweepResults) -> None:
    failures = results.failures
    for run in failures[:FAILURES_SHOWN]:
        place = f"{run['family']}: experiment {run['experiment']}, seed {run['seed']}"
        warn((f"{place}: {run['status']}: {run['message']}",))
    if failures:
        rest = len(failures) - FAILURES_SHOWN
        more = f"; {rest} more in the report" if rest > 0 else ""
        warn((f"{counted(len(failures), 'run')} failed{more}; repeat the command to try them again",))
