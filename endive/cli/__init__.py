"""The `endive` command. One file per group of commands; this one puts them together."""

import sys

import typer

from endive.cli import compare, config, demo, providers, run
from endive.cli.console import errors
from endive.errors import EndiveError

app = typer.Typer(
    name="endive",
    help="How many commits an Iceberg table takes on object storage.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("providers")(providers.providers)
app.command("demo")(demo.demo)
app.add_typer(config.app, name="config")


def main() -> None:
    """Run the command line. Input that is wrong ends with one message and exit code 2, an interruption with 130."""
    try:
        app()
    except EndiveError as error:
        errors.print(f"[bold red]error:[/] {errors.escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted; what was finished is kept, the same command goes on from there")
        sys.exit(130)
