"""`endive config`: look at a configuration without running it."""

import json
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.table import Table

from endive.cli.console import Overrides, output, warn
from endive.sim.config import Settings, load_configuration

app = typer.Typer(help="Check a configuration, or show what is in force and why.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="A configuration in TOML.")]


@app.command()
def check(file: File, overrides: Overrides = None) -> None:
    """Check a configuration completely: every fault at once, each with its place and the nearest valid name."""
    settings = load_configuration(file, overrides or ())
    warn(settings.warnings)
    output.print(f"{file}: fine; experiment {settings.label}-{settings.experiment_hash()}", soft_wrap=True)


@app.command()
def show(
    file: File,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show every value in force and where it came from: the file, `--set`, another choice, or the default."""
    settings = load_configuration(file, overrides or ())
    warn(settings.warnings)
    rows = list(values_in_force(settings))
    if as_json:
        output.print_json(json.dumps({key: {"value": value, "from": origin} for key, value, origin in rows}))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("key", "value", "from"):
        table.add_column(heading, overflow="fold")
    for key, value, origin in rows:
        table.add_row(key, _text(value), origin)
    output.print(table)


def values_in_force(settings: Settings) -> list[tuple[str, Any, str]]:
    """Return (key, value, origin) of the whole configuration, the provider's latencies included."""
    rows = _leaves(settings.values, "", settings)
    explicit = settings.values.storage.latency.model_fields_set
    for name, row in settings.profile.latencies.items():
        origin = settings.given.get(f"storage.latency.{name}", _profile_origin(settings, name))
        rows.append((f"storage.latency.{name}", row.describe(), _first(settings, name) if name in explicit else origin))
    return sorted(rows)


def _first(settings: Settings, name: str) -> str:
    prefix = f"storage.latency.{name}."
    return next(origin for key, origin in settings.given.items() if key.startswith(prefix))


def _profile_origin(settings: Settings, name: str) -> str:
    source = settings.profile.sources.get(name)
    return f"profile {settings.profile.name}: {source}" if source else "the profile's write model, by size"


def _leaves(section: BaseModel, prefix: str, settings: Settings) -> list[tuple[str, Any, str]]:
    rows: list[tuple[str, Any, str]] = []
    for name, value in section:
        key = prefix + name
        if key == "storage.latency":
            continue
        if isinstance(value, BaseModel):
            rows += _leaves(value, f"{key}.", settings)
        elif value is not None:
            origin = settings.given.get(key) or settings.origins.get(key) or "default"
            rows.append((key, value, origin))
    return rows


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
