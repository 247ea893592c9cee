"""The `endive` command; its subcommands are in `later`, one module for each."""

from typing import Annotated

import typer

from endive.cli.console import output
from endive.cli.later import MARKUP, LazyGroup
from endive.version import version

app = typer.Typer(
    name="endive",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
)


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
