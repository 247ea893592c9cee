"""`endive providers`: the profiles, their figures and where the figures come from."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from endive.cli.console import output
from endive.errors import ConfigurationError
from endive.sim.config.profiles import PROFILE_SETS, load_profile_file, load_profile_set
from endive.sim.storage import Contention, LatencyDistribution, Profile
from endive.wording import suggestion

OPERATIONS = ("read", "write", "cas", "cas_failure", "append", "append_failure", "tail_append")


def providers(
    name: Annotated[str | None, typer.Argument(help="One provider, with the source of each figure.")] = None,
    profile_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Profiles of your own, in TOML.")] = None,
) -> None:
    """List the storage providers: median latency in milliseconds by operation; a dash is a missing capability.

    With a name, all figures of that provider and where each comes from. `storage.provider` and `storage.profiles`
    choose one in a configuration. Profiles of your own go into a file of the same form as Endive's: a table for each
    provider, in it a distribution for each operation (`read` and `write` at least), named by `storage.profile_file`.

    For example:

    `endive providers s3`

    `endive providers --profile-file mine.toml`
    """
    sets = {kind: load_profile_set(kind) for kind in PROFILE_SETS}
    if profile_file is not None:
        sets[profile_file.name] = load_profile_file(profile_file)
    known = {profile for profiles in sets.values() for profile in profiles}
    if name is not None and name not in known:
        hint = suggestion(name, known) or f"; known: {', '.join(sorted(known))}"
        raise ConfigurationError("endive providers", [f"no profile {name!r}{hint}"])
    for kind, profiles in sets.items():
        if name is None:
            output.print(_overview(kind, list(profiles.values())))
            output.print()
        elif name in profiles:
            output.print(_figures(kind, profiles[name]))
            output.print()


def _median(row: LatencyDistribution | None) -> str:
    return "-" if row is None else f"{row.quantile.ticks_at(0.5) / 1e6:.4g}"


def _overview(kind: str, profiles: list[Profile]) -> Table:
    table = Table(title=f'profiles = "{kind}"', title_justify="left", box=None, pad_edge=False)
    table.add_column("provider")
    for heading in (*OPERATIONS, "floor"):
        table.add_column(heading.replace("_", " "), justify="right")
    for profile in profiles:
        medians = [_median(profile.latencies.get(operation)) for operation in OPERATIONS]
        table.add_row(profile.name, *medians, f"{profile.min_latency_ms:g}")
    return table


def _figures(kind: str, profile: Profile) -> Table:
    title = f'{profile.title or profile.name}: provider = "{profile.name}", profiles = "{kind}"'
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("operation", "latency, ms", "source"):
        table.add_column(heading, overflow="fold")
    for operation, row in profile.latencies.items():
        table.add_row(operation, row.describe(), profile.sources.get(operation, ""))
    if profile.contention != Contention():
        scale = f"{profile.contention.per_writer:+g} per writer, at most {profile.contention.scale_max:g} times"
        table.add_row("contention", scale, profile.sources.get("contention", ""))
    return table
