"""`endive capacity`: the highest offered load, or the worst value of any number, that meets a target."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from endive.cli import INTERRUPTED
from endive.cli.console import MASTERS, Overrides, SettingsOption, ShipOption, errors, output, warn
from endive.cli.run import ConsoleWatcher, UncertaintyOption
from endive.cli.tables import rich_table
from endive.errors import ConfigurationError
from endive.extras import naming_extra
from endive.sim.config.seeds import seeds_of
from endive.sim.results.axis import Worse
from endive.sim.results.capacity_results import CapacityResults
from endive.sim.results.capacity_results import capacity as find_capacity
from endive.sim.results.capacity_search import Spread
from endive.sim.results.display import Grid


def capacity(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A configuration in TOML. Without --over, with open arrivals.")
    ] = None,
    success: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Share of transactions that must commit; default: 0.95.")
    ] = None,
    p99_ms: Annotated[float | None, typer.Option("--p99-ms", min=0.0, help="Highest p99 of commit latency.")] = None,
    over: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Vary this number instead of the offered load: `streams.writers`, `streams.interval_ms`, "
            "`catalog.num_tables`, `transaction.retry`; a distribution by its mean.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC>=X",
            help="What must hold, such as `'compaction.success>=0.9'` or `'streams.p99_ms<=5000'`; may be repeated. "
            "Quote it. Default with classes: 95 % success of each.",
        ),
    ] = None,
    worse: Annotated[
        Worse | None,
        typer.Option(help="With --over: which values are worse. Unless given, known by the key or found by trying."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,…", help="Search each of these values; several `--vary` search every combination."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="A..B", help="Replications; more narrow the interval.")] = "1..5",
    tolerance: Annotated[float, typer.Option(min=0.001, max=0.5, help="Of each search, relative to the load.")] = 0.01,
    overrides: Overrides = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help=f"Search on Spark: {MASTERS}. Default: threads of this process."),
    ] = None,
    settings: SettingsOption = None,
    ship: ShipOption = False,
    saved: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR|URL", help="Read the capacities of a sweep that has run; nothing runs."),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="NAME", help="Which sweep of a catalog; default: the most recent.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="ENDIVE_ENDPOINT", help="Address of an S3-compatible server or emulator."),
    ] = None,
    uncertainty: UncertaintyOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Find the highest offered load that meets a target, with its 95 % confidence interval.

    The search starts at the file's own load and scales its distribution of arrivals. Every seed gives the same
    transactions at every load. With --over, another number is varied, from the file's own value: of a class, of a
    closed loop, of the catalog. The answer says how far today's value is from the limit. Its interval contains the
    tolerance of the search. Metrics marked † rest on a part of the model that was not checked.

    For example:

    `endive capacity configs/fast_append_s3.toml --success 0.95`

    `endive capacity configs/fleet.toml --over streams.writers --target 'streams.success>=0.95'`

    `endive capacity configs/capacity.toml --vary storage.provider=s3,s3x,gcp --vary catalog.num_tables=1,10,20`

    `endive capacity configs/capacity.toml --vary catalog.num_tables=1,10,20 --master spark://host:7077 --ship`

    `endive capacity --from s3://bucket/lake --sweep published`
    """
    if (file is None) == (saved is None):
        raise ConfigurationError("capacity", ["give a configuration FILE, or --from with the results of a sweep"])
    if saved is not None:
        _show_saved(saved, sweep, endpoint, success, as_json)
        return
    if master is None and (settings or ship):
        raise ConfigurationError("capacity", ["--conf and --ship are for Spark: give --master"])
    with _spread(master, settings or (), ship) as spread:
        results = find_capacity(
            str(file),
            success,
            p99_ms,
            over=over,
            targets=target or (),
            worse=worse,
            uncertainty=uncertainty,
            vary=vary or (),
            seeds=seeds_of(seeds, 0, "--seeds"),
            tolerance=tolerance,
            overrides=overrides or (),
            watcher=ConsoleWatcher(),
            spread=spread,
        )
    if as_json:
        output.print_json(json.dumps(results.document()))
    else:
        _show(results, as_table=bool(vary))
    warn(tuple(results.remarks))
    if not results.complete:
        complete = f"{len(results.answers)} of {len(results.cases)} answers were complete"
        errors.print(f"interrupted: {complete}; a search keeps nothing else")
        raise typer.Exit(INTERRUPTED)


def _show(results: CapacityResults, as_table: bool) -> None:
    if as_table:
        output.print(rich_table(results.grids()[0], caption=results.title))
    else:
        for case in results.answers:
            output.print(results.sentence(case), soft_wrap=True, markup=False)
    for note in results.notes:
        output.print(note, soft_wrap=True, markup=False)


@contextmanager
def _spread(master: str | None, settings: Sequence[str], ship: bool) -> Iterator[Spread | None]:
    """Provide the way to run searches: on Spark, or None for the threads of this machine."""
    if master is None:
        yield None
        return
    with naming_extra("sweep"):
        from endive.cli.sweep import spark_settings  # noqa: PLC0415 - Spark is an extra
        from endive.pipeline.searching import on_spark  # noqa: PLC0415
        from endive.pipeline.sweep import LIGHT  # noqa: PLC0415
        from endive.spark.session import spark_session  # noqa: PLC0415

    chosen = {**LIGHT, **spark_settings(settings)}
    errors.print("starting Spark", markup=False)
    with spark_session(master, settings=chosen, ship=ship, sources=False) as spark:
        yield on_spark(spark)


def _show_saved(place: str, sweep: str | None, endpoint: str | None, success: float | None, as_json: bool) -> None:
    """Print the sustainable throughput of each series of a sweep."""
    with naming_extra("sweep"):
        from endive.pipeline.opening import open_results  # noqa: PLC0415 - Spark is an extra
        from endive.pipeline.results import HEADINGS, series_cells  # noqa: PLC0415

    results = open_results(place, sweep, endpoint)
    if as_json:
        output.print_json(json.dumps(results.group_documents(success)))
        return
    captions = results.captions
    for title, rows in results.groups_at(success).items():
        output.print(captions[title], soft_wrap=True, markup=False)
        grid = Grid(("", *HEADINGS), [(row["series"] or title, *series_cells(row)) for row in rows])
        output.print(rich_table(grid))
    for note in results.footnotes:
        output.print(note, soft_wrap=True, markup=False)
