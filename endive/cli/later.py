"""The group of all commands: each is imported when it is used, so that it needs no packages but its own."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from endive.extras import naming_extra

MARKUP: Literal["markdown"] = "markdown"


class Later(NamedTuple):
    """A command or a group of commands, in the module `endive.cli.<name>`."""

    help: str
    """The first line of its help, for the list of commands."""
    extra: str | None = None
    """The extra that brings its packages; None: the core does."""


COMMANDS = {
    "run": Later("Simulate a configuration and print its metrics.", "sim"),
    "sweep": Later(
        "Run every experiment of a sweep on Spark, find the saturation points, and write the report.", "sweep"
    ),
    "report": Later("Write the results of a sweep as one HTML page with charts that works offline.", "report"),
    "capacity": Later("Find the highest offered load that meets a target, with its 95 % confidence interval.", "sim"),
    "advise": Later("Try the interventions that exist for a configuration, and rank them by their effect.", "sim"),
    "compare": Later("Show two results side by side, and the difference of each metric.", "sim"),
    "providers": Later(
        "List the storage providers: median latency in milliseconds by operation; a dash is a missing capability.",
    ),
    "demo": Later(
        "Predict how many commits per second one to twenty tables sustain on three object stores: about a minute.",
        "sweep",
    ),
    "config": Later("Validate a configuration, show its effective values and their origin, or list all keys.", "sim"),
    "kv": Later("The key-value store that needs nothing but a bucket."),
    "catalog": Later("Iceberg tables that need nothing but a bucket."),
    "serve": Later(
        "Serve catalogs by Iceberg's REST protocol: for Spark SQL, Trino, Flink, DuckDB, PyIceberg and others.",
        "server",
    ),
    "spark-sql": Later(
        "Run Spark SQL on the tables of a catalog: Iceberg's own runtime, and nothing to set up.", "sql"
    ),
}


class _Commands(Mapping[str, Any]):
    """Commands by name, imported on access."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - Typer's own commands
        with naming_extra(COMMANDS[name].extra):
            module = import_module(f"endive.cli.{name.replace('-', '_')}")
        group = getattr(module, "app", None)
        if group is not None:
            group.rich_markup_mode = MARKUP
            return typer.main.get_group(group)
        single = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
        single.command(name)(getattr(module, name.replace("-", "_")))
        return typer.main.get_command(single)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """All commands of `endive`. Its list of commands imports none of them."""

    _lists = False

    @property
    def commands(self) -> Any:  # noqa: ANN401
        """The commands by name."""
        return _Commands()

    @commands.setter
    def commands(self, _none: Any) -> None:  # noqa: ANN401 - Typer assigns the commands it knows: none
        """Ignore an assignment."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        if self._lists:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name].help)
        return _Commands()[cmd_name] if cmd_name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        self._lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists = False
