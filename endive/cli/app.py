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
    """Predict how many commits per second Iceberg tables sustain, and run a catalog that needs only a bucket.

    The simulator: a configuration (TOML) describes the store, the catalog and the transactions; `endive run` simulates
    it and prints throughput, success, latency and where the time goes. Begin with `endive demo`, then `endive run
    configs/fast_append_s3.toml`, and change keys with `--set`; `endive config keys` lists them.

    The catalog: `endive catalog init lake` creates one; PyIceberg, Spark and this command use its tables. `endive kv`
    is the key-value store below it.
    """
