"""`endive config`: validate and inspect a configuration without running it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.markup import escape
from rich.table import Table

from endive.cli.console import Overrides, output, warn
from endive.sim.config.configuration import Settings, load_configuration
from endive.sim.config.reference import keys

app = typer.Typer(
    help="Validate a configuration, show its effective values and their origin, or list all keys.", no_args_is_help=True
)

File = Annotated[str, typer.Argument(metavar="FILE", help="A configuration in TOML; `configs/` has examples.")]


@app.command()
def check(file: File, overrides: Overrides = None) -> None:
    """Validate a configuration: every error at once, each with its key and the nearest valid name.

    Warnings name keys that have no effect with the other values. Nothing is run or written.
    """
    settings = load_configuration(file, overrides or ())
    warn(settings.warnings)
    name = f"{settings.label}-{settings.experiment_hash()}"
    output.print(f"{file}: fine; experiment {name}", soft_wrap=True, markup=False)


@app.command()
def show(
    file: File,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show every effective value and its origin: the file, `--set`, another key, or the default."""
    settings = load_configuration(file, overrides or ())
    warn(settings.warnings)
    rows = list(values_in_force(settings))
    if as_json:
        output.print_json(json.dumps({key: {"value": value, "from": origin} for key, value, origin in rows}))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("key", no_wrap=True)
    for heading in ("value", "from"):
        table.add_column(heading, overflow="fold")
    for key, value, origin in rows:
        table.add_row(key, escape(_text(value)), escape(origin))
    output.print(table)


@app.command("keys")
def show_keys(
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="A section, such as `catalog`, or a key; else all.")
    ] = "",
) -> None:
    """List the configuration keys with type, default and meaning.

    A key without a default is required, or depends on another key, as its meaning says. Times are in
    milliseconds, sizes in bytes. `endive config keys distribution` lists the parameters of distributions.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("key", no_wrap=True)
    for heading in ("takes", "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for key in keys(prefix):
        table.add_row(*map(escape, (key.name, key.takes, key.default, key.meaning)))
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
        elif isinstance(value, Mapping):
            for inner, part in value.items():
                rows += _leaves(part, f"{key}.{inner}.", settings)
        elif value is not None:
            rows.append((key, value, _origin(settings, key)))
    return rows


def _origin(settings: Settings, key: str) -> str:
    """Return where a value comes from; that of a class may be shared."""
    found = settings.given.get(key) or settings.origins.get(key)
    shared = ".".join(["transaction", *key.split(".")[2:]])
    if found is None and key.startswith("workload.") and shared in settings.given:
        return f"{settings.given[shared]}: {shared}"
    return found or "default"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
