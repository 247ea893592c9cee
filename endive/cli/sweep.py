"""`endive sweep`: families of experiments on Spark, from the files to the report."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from endive.cli.console import Overrides, errors, output, resumable, say_if_compiling, warn
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan
from endive.pipeline.sweep import Family, load_family
from endive.sim.results.metrics import number
from endive.spark.master import cores_here, parse_master
from endive.wording import counted

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: `local[4]`, or a cluster such as `spark://host:7077`. Unless given, all cores here.",
    ),
]

LIGHT = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Where the JVM only hands out bins, compiling itself well costs more than it brings."""

SPARK_S = 20.0
"""About what starting Spark, the measures and the report take."""

ROWS_SHOWN = 20
"""Lines of the closing table; the report has all of them."""

FAILURES_SHOWN = 5


def sweep(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Sweep files in TOML; `configs/sweeps/` has examples.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory of the sweep; unless given, `sweeps/<name>`."),
    ] = None,
    master: MasterOption = None,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="URL", help="Catalog whose tables get the results as well; made if need be."),
    ] = None,
    overrides: Overrides = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Check and size the sweep; run nothing.")] = False,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
) -> None:
    """Run every experiment of a sweep on Spark, find the saturation points, and write the report.

    A sweep file names a base configuration, the keys to vary and the seeds. Several files go into one report.
    Everything is checked before anything runs. An interrupted sweep goes on where it stopped when the same command is
    given again; a changed configuration is another experiment and is run.

    For example:

    `endive sweep configs/sweeps/small.toml`

    `endive sweep configs/sweeps/published/*.toml --out sweeps/published`

    `endive sweep configs/sweeps/published/mix.toml --plan`

    `endive sweep configs/sweeps/small.toml --into s3://bucket/lake`
    """
    asked = parse_master(master)
    plan = Plan(tuple(load_family(file, overrides or ()) for file in files))
    for family in plan.families:
        warn(tuple(f"{family.name}: {warning}" for warning in family.warnings))
    directory = out or Path("sweeps") / _default_name(files)
    cores = asked.cores or cores_here()
    output.print(size(plan, cores), soft_wrap=True, markup=False)
    if not plan_only:
        with resumable():
            run_sweep(plan, directory, master, into)
        close(plan, directory, report)


def _default_name(files: Sequence[str]) -> str:
    return Path(files[0]).stem if len(files) == 1 else Path(files[0]).absolute().parent.name


def size(plan: Plan, cores: int) -> str:
    """Return how large a sweep is, in words."""
    experiments = sum(len(family.members) for family in plan.families)
    seeds = {len(family.seeds) for family in plan.families}
    times = f" × {counted(seeds.pop(), 'seed')}" if len(seeds) == 1 else ""  # noqa: RUF001 - "times", as people write it
    shared = plan.asked - len(plan.runs)
    twice = f", {shared:,} of them shared between families and run once" if shared else ""
    about = _time(SPARK_S + plan.cost(plan.runs) / cores)
    return f"{counted(experiments, 'experiment')}{times} = {counted(plan.asked, 'run')}{twice}; about {about}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def run_sweep(plan: Plan, directory: Path, master: str | None, into: str | None = None) -> None:
    """Do the runs and compute the measures; publish the runs in the catalog `into`. What is there is not done again."""
    from endive.pipeline.execute import execute  # noqa: PLC0415
    from endive.pipeline.frames import consolidate  # noqa: PLC0415
    from endive.spark.daemon import warm_engine  # noqa: PLC0415 - Numba and Spark take seconds to load
    from endive.spark.java import find_java  # noqa: PLC0415
    from endive.spark.session import spark_session  # noqa: PLC0415

    SweepDirectory(directory.absolute()).prepare(plan)  # what cannot be written should fail before Spark starts
    say_if_compiling()
    warm_engine()
    java = find_java()
    warn(java.skipped)
    errors.print(f"starting Spark with {java}", markup=False, soft_wrap=True)
    settings = LIGHT if plan.keep == "summaries" else {}
    with _published(plan, directory, into) as publish, spark_session(master, settings=settings, java=java) as spark:
        with _progress(plan, directory) as show:

            def tell(count: int, seconds: float) -> None:
                publish()
                show(count, seconds)

            execute(plan, directory, spark, tell)
        publish()
        errors.print("computing measures", markup=False)
        consolidate(directory, spark)


@contextmanager
def _published(plan: Plan, directory: Path, into: str | None) -> Iterator[Callable[[], None]]:
    """Give a function that puts into the catalog what has been finished since it was called last."""
    if into is None:
        yield lambda: None
        return
    from endive.pipeline.catalog_tables import Publication  # noqa: PLC0415 - PyIceberg takes a second to load

    with Publication(into, directory.absolute().name, SweepDirectory(directory.absolute())) as publication:
        publication.begin(plan)
        publication.publish()
        yield publication.publish
        tables = ", ".join(publication.tables)
        errors.print(f"published in {into}: {tables}", markup=False, soft_wrap=True)


@contextmanager
def _progress(plan: Plan, directory: Path) -> Iterator[Callable[[int, float], None]]:
    """Show runs done, the rate, and the time left by what the remaining runs will cost."""
    runs = plan.remaining(SweepDirectory(directory.absolute()).done(plan))
    if len(runs) < len(plan.runs):
        errors.print(f"{len(plan.runs) - len(runs):,} runs are done already", markup=False)
    columns = (
        TextColumn("{task.fields[runs]:,} of {task.fields[all]:,} runs"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %, {task.fields[rate]:.1f} runs/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=max(plan.cost(runs), 1e-9), runs=0, all=len(runs), rate=0.0)

        def tell(count: int, seconds: float) -> None:
            elapsed_s = progress.tasks[0].elapsed or 0.0
            rate = count / elapsed_s if elapsed_s else 0.0
            progress.update(task, completed=seconds, runs=count, rate=rate)

        yield tell


def close(plan: Plan, directory: Path, report: bool) -> None:
    """Say what came out, what failed, and where to look."""
    rows = pq.read_table(directory / "measures" / "curves.parquet").to_pylist()
    for family in plan.families:
        output.print(usable_table(family, [row for row in rows if row["family"] == family.name]))
    _tell_failures(directory)
    output.print(f"measures: {directory / 'measures'}", soft_wrap=True, markup=False)
    if report:
        from endive.report.page import write_report  # noqa: PLC0415 - Altair takes a second to load

        output.print(f"report: {write_report(directory)}", soft_wrap=True, markup=False)


def usable_table(family: Family, rows: Sequence[dict[str, Any]]) -> Table:
    """Return what each series of a family takes."""
    table = Table(title=escape(family.title), box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.add_column("")
    for heading in ("usable", "commits/s", "p99 ms", "saturates at", "peak commits/s"):
        table.add_column(heading, justify="right")
    for row in rows[:ROWS_SHOWN]:
        figures = [
            row["usable_committed_per_s"],
            row["usable_p99_ms"],
            row["saturation_load"],
            row["peak_committed_per_s"],
        ]
        table.add_row(escape(row["series"] or family.name), _usable(row), *(_cell(figure) for figure in figures))
    if len(rows) > ROWS_SHOWN:
        table.add_row(f"and {len(rows) - ROWS_SHOWN} more in the report")
    return table


def _usable(row: dict[str, Any]) -> str:
    if row["usable_load"] is None:
        return f"< {number(row['fails_from_load'])}" if row["fails_from_load"] is not None else "-"
    return f"≥ {number(row['usable_load'])}" if row["fails_from_load"] is None else number(row["usable_load"])


def _cell(value: float | None) -> str:
    return "-" if value is None else number(value)


def _tell_failures(directory: Path) -> None:
    columns = ["family", "experiment", "seed", "status", "message"]
    runs = pq.read_table(directory / "measures" / "runs.parquet", columns=columns).to_pylist()
    bad = [run for run in runs if run["status"] != "done"]
    for run in bad[:FAILURES_SHOWN]:
        warn(
            (f"{run['family']}: experiment {run['experiment']}, seed {run['seed']}: {run['status']}: {run['message']}",)
        )
    if bad:
        rest = len(bad) - FAILURES_SHOWN
        more = f"; {rest} more in the report" if rest > 0 else ""
        warn((f"{len(bad)} of {len(runs)} runs did not end well{more}; the same command tries them again",))
