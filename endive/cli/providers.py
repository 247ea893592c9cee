"""`endive providers`: the profiles, their latencies and the sources of these."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from endive.cli.console import output
from endive.cli.tables import rich_table
from endive.errors import ConfigurationError
from endive.sim.config.profiles import PROFILE_SETS, load_profile_file, load_profile_set
from endive.sim.results.display import Grid
from endive.sim.storage import Contention, LatencyDistribution, Profile
from endive.timing import TICKS_PER_MS
from endive.wording import suggestion

OPERATIONS = ("read", "write", "cas", "cas_failure", "append", "append_failure", "tail_append")


def providers(
    name: Annotated[str | None, typer.Argument(help="One provider, with the source of each latency.")] = None,
    profile_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Profiles of your own, in TOML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the storage providers: median latency in milliseconds by operation; a dash is a missing capability.

    With a name, all latencies of that provider and their sources. `storage.provider` and `storage.profiles` choose one
    in a configuration. Profiles of your own go into a file of the same form as Endive's: a table for each provider, in
    it a distribution for each operation (`read` and `write` at least), named by `storage.profile_file`.

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
    chosen = {
        kind: [each for each in profiles.values() if name in (None, each.name)] for kind, profiles in sets.items()
    }
    if as_json:
        output.print_json(json.dumps({kind: list(map(_document, profiles)) for kind, profiles in chosen.items()}))
        return
    for kind, profiles in chosen.items():
        place = f'profiles = "{kind}"'
        if name is None:
            _print(_overview(profiles), place)
            continue
        for profile in profiles:
            _print(_latencies(profile), f'{profile.title or profile.name}: provider = "{profile.name}", {place}')


def _print(grid: Grid, title: str) -> None:
    output.print(title, style="italic", soft_wrap=True, markup=False)
    output.print(rich_table(grid))
    output.print()


def _median_ms(row: LatencyDistribution) -> float:
    return row.quantile.ticks_at(0.5) / TICKS_PER_MS


def _median(row: LatencyDistribution | None) -> str:
    return "-" if row is None else f"{_median_ms(row):.4g}"


def _overview(profiles: list[Profile]) -> Grid:
    headings = ("provider", *(operation.replace("_", " ") for operation in OPERATIONS), "floor")
    rows = [
        (profile.name, *(_median(profile.latencies.get(name)) for name in OPERATIONS), f"{profile.min_latency_ms:g}")
        for profile in profiles
    ]
    return Grid(headings, rows)


def _latencies(profile: Profile) -> Grid:
    rows = [
        (operation, row.describe(), profile.sources.get(operation, "")) for operation, row in profile.latencies.items()
    ]
    if profile.contention != Contention():
        scale = f"{profile.contention.per_writer:+g} per writer, at most {profile.contention.scale_max:g} times"
        rows.append(("contention", scale, profile.sources.get("contention", "")))
    return Grid(("operation", "latency, ms", "source"), rows, frozenset({0, 1, 2}))


def _document(profile: Profile) -> dict[str, Any]:
    return {
        "provider": profile.name,
        "title": profile.title,
        "min_latency_ms": profile.min_latency_ms,
        "latencies": {
            operation: {
                "distribution": row.describe(),
                "median_ms": _median_ms(row),
                "source": profile.sources.get(operation, ""),
            }
            for operation, row in profile.latencies.items()
        },
    }
