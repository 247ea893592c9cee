"""`endive providers`: the profiles, their latencies and the sources of these."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from endive.cli.console import output
from endive.cli.tables import rich_table
from endive.errors import ConfigurationError
from endive.sim.config.catalogs import load_presets
from endive.sim.config.profiles import PROFILE_SETS, load_client_sections, load_profile_file, load_profile_set
from endive.sim.limits import Contention, RateLimit
from endive.sim.results.display import Grid
from endive.sim.storage import LatencyDistribution, Profile
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
        document: dict[str, Any] = {kind: list(map(_document, profiles)) for kind, profiles in chosen.items()}
        if name is None:
            document |= {
                "catalogs": {key: each.model_dump(exclude_none=True) for key, each in load_presets().items()},
                "clients": {key: each.model_dump() for key, each in load_client_sections().items()},
            }
        output.print_json(json.dumps(document))
        return
    for kind, profiles in chosen.items():
        place = f'profiles = "{kind}"'
        if name is None:
            _print(_overview(profiles), place)
            continue
        for profile in profiles:
            _print(_latencies(profile), f'{profile.title or profile.name}: provider = "{profile.name}", {place}')
    if name is None:
        _print(_presets(), "catalog.preset: kinds of catalogs; --json has every value and its source")
        _print(_clients(), "storage.client: how SDKs repeat a throttled request")


def _print(grid: Grid, title: str) -> None:
    output.print(title, style="italic", soft_wrap=True, markup=False)
    output.print(rich_table(grid))
    output.print()


def _median_ms(row: LatencyDistribution) -> float:
    return row.quantile.ticks_at(0.5) / TICKS_PER_MS


def _median(row: LatencyDistribution | None) -> str:
    return "-" if row is None else f"{_median_ms(row):.4g}"


def _overview(profiles: list[Profile]) -> Grid:
    headings = ("provider", *(operation.replace("_", " ") for operation in OPERATIONS), "floor", "trust")
    rows = [
        (
            profile.name,
            *(_median(profile.latencies.get(name)) for name in OPERATIONS),
            f"{profile.min_latency_ms:g}",
            profile.trust,
        )
        for profile in profiles
    ]
    return Grid(headings, rows)


def _latencies(profile: Profile) -> Grid:
    rows = [
        (operation, row.describe(), profile.sources.get(operation, "")) for operation, row in profile.latencies.items()
    ]
    rows += [(name, text, profile.sources.get(name, "")) for name, text in _limits(profile).items()]
    return Grid(("operation", "latency, ms; limits", "source"), rows, frozenset({0, 1, 2}))


def _limits(profile: Profile) -> dict[str, str]:
    """Return contention, point of decision, limits and client in words, as far as the profile has them."""
    found: dict[str, str] = {"trust": f"{profile.trust}: {profile.checked}"} if profile.checked else {}
    for name, contention in (("contention", profile.contention), ("append_contention", profile.append_contention)):
        if contention is not None and contention != Contention():
            found[name] = _contention(contention)
    found["decision"] = f"at {profile.decision:g} of the round trip"
    if profile.append_decision is not None:
        found["append_decision"] = f"at {profile.append_decision:g} of the round trip"
    limit, client = profile.object_limit, profile.client
    if limit != RateLimit():
        costs = f"a refused one counts {limit.refusal_cost:g}, a throttled one {limit.throttle_cost:g}"
        bucket = f"at most {limit.burst:g} at once; {costs}"
        found["object_limit"] = f"{limit.per_s:g} conditional writes per second and object, {bucket}"
    prefix = profile.prefix_limit
    if prefix.is_set:
        rates = f"{prefix.reads_per_s:,g} reads and {prefix.writes_per_s:,g} writes"
        found["prefix_limit"] = f"{rates} per second and prefix, with storage.prefix_limits"
    if limit != RateLimit() or prefix.is_set:
        found["client"] = (
            f"{client.name}: {client.attempts} attempts, {client.base_ms:g} ms, times {client.multiplier:g}"
            if client.name
            else "none: throttled requests pass at their turn"
        )
    return found


def _contention(contention: Contention) -> str:
    beyond = f" beyond {contention.free} in flight" if contention.free > 1 else ""
    if contention.half:
        return f"up to {contention.scale_max:g} times{beyond}, half of that with {contention.half:g} more in flight"
    return f"{contention.per_writer:+g} per writer{beyond}, at most {contention.scale_max:g} times"


def _document(profile: Profile) -> dict[str, Any]:
    return {
        "provider": profile.name,
        "title": profile.title,
        "trust": profile.trust,
        "checked": profile.checked,
        "min_latency_ms": profile.min_latency_ms,
        "latencies": {
            operation: {
                "distribution": row.describe(),
                "median_ms": _median_ms(row),
                "source": profile.sources.get(operation, ""),
            }
            for operation, row in profile.latencies.items()
        },
        "limits": {
            name: {"meaning": text, "source": profile.sources.get(name, "")} for name, text in _limits(profile).items()
        },
    }


def _presets() -> Grid:
    rows = [
        (name, preset.conflict_granularity, preset.pointers, f"{preset.trust}: {preset.checked}", preset.title)
        for name, preset in load_presets().items()
    ]
    return Grid(("preset", "granularity", "a pointer for each", "checked", "catalog"), rows, frozenset(range(5)))


def _clients() -> Grid:
    rows = [
        (
            name,
            str(client.attempts),
            f"{client.base_ms:g}",
            f"{client.multiplier:g}",
            f"{client.max_ms:g}",
            f"{client.jitter:g}",
            client.title,
        )
        for name, client in load_client_sections().items()
    ]
    return Grid(
        ("client", "attempts", "first wait, ms", "factor", "longest, ms", "jitter", "SDK"), rows, frozenset({0, 6})
    )
