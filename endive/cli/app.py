"""The commands put together, one module for each group."""

from typing import Annotated

import typer

from endive.cli import capacity, compare, config, demo, kv, providers, report, run, sweep
from endive.cli.console import output
from endive.cli.later import later
from endive.sim.results.experiment import version

app = typer.Typer(
    name="endive",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
app.command("capacity")(capacity.capacity)
app.command("compare")(compare.compare)
app.command("providers")(providers.providers)
app.command("demo")(demo.demo)
app.add_typer(config.app, name="config")
app.add_typer(kv.app, name="kv")
app.add_typer(later("endive.cli.catalog", "Iceberg tables that need nothing but a bucket."), name="catalog")


def _show_version(wanted: bool) -> None:
    if wanted:
        output.print(version())
        raise typer.Exit


@app.callback()
def _endive(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Iceberg tables on object storage: a catalog and a store that need nothing but a bucket, and a commit simulator.

    `endive catalog init lake` makes a catalog; its tables are PyIceberg's, Spark's, and this command's to use. `endive
    kv` is the store below it.

    The simulator says how many commits a table takes before they start to fail. A configuration (TOML) says which
    store, which catalog and which transactions; `endive run` simulates it and shows throughput, success, latency and
    where the time went. To begin: `endive demo`, then `endive run configs/fast_append_s3.toml`, then change something
    with `--set`; `endive config keys` lists what there is to change.
    """
