"""The `endive` command. One file per group of commands; this one puts them together."""

import sys
from typing import Annotated

import typer

from endive.cli import capacity, compare, config, demo, providers, run
from endive.cli.console import errors, output
from endive.errors import EndiveError, InvariantError
from endive.sim.experiment import version

app = typer.Typer(
    name="endive",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("capacity")(capacity.capacity)
app.command("compare")(compare.compare)
app.command("providers")(providers.providers)
app.command("demo")(demo.demo)
app.add_typer(config.app, name="config")


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
    """How many commits an Iceberg table takes on object storage before they start to fail.

    A configuration (TOML) says which store, which catalog and which transactions; `endive run` simulates it and shows
    throughput, success, latency and where the time went. To begin: `endive demo`, then
    `endive run configs/fast_append_s3.toml`, then change something with `--set`; `endive config keys` lists what there
    is to change.
    """


INTERRUPTED = 130
"""What shells and Typer report for Ctrl-C."""


def main() -> None:
    """Run the command line. Input that is wrong ends with one message and exit code 2, an interruption with 130."""
    try:
        app()
    except InvariantError as error:
        _fail(f"{error}; this is a defect of Endive: please report it with the configuration and the seed", 1)
    except EndiveError as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror or error}; free some space or write elsewhere", 2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            errors.print("interrupted; what was finished is kept, the same command goes on from there")
        raise


def _fail(message: str, code: int) -> None:
    errors.print(f"[bold red]error:[/] {errors.escape(message)}", soft_wrap=True)
    sys.exit(code)
