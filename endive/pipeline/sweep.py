"""Sweeps: a file that names a family of experiments.

    title = "Catalog latency"
    base = "fast_append.toml"                  # a configuration, seen from this file; or [configuration] in this one
    seeds = "1..5"

    [grid]                                     # every combination
    "storage.provider" = ["s3", "s3x"]
    "transaction.inter_arrival.scale" = [20, 50, 100]

    [zip]                                      # columns of one length, row by row
    [[list]]                                   # members one by one

A family is every combination of the listed members, the zipped rows and the grid. Everything is checked before anything
runs, and all faults are told at once.
"""

import copy
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, field_validator

from endive.errors import ConfigurationError
from endive.pipeline.grid import Row, pairs, row_faults, rows
from endive.sim.config.configuration import Settings, parse_configuration, put
from endive.sim.config.defaults import mean_ms
from endive.sim.config.profiles import read_text
from endive.sim.config.schema import LABEL, SEED_MAX, Section
from endive.sim.config.seeds import parse_seeds
from endive.sim.config.validation import faults_of

Keep = Literal["summaries", "transactions"]
Seed = Annotated[int, Field(ge=0, le=SEED_MAX, strict=True)]

FAULTS_SHOWN = 10
"""A fault of the base is a fault of a thousand members; they are not all worth reading."""

LOADS = ("transaction.inter_arrival", "transaction.writers")
"""Keys that set how much is asked of the catalog."""


class SweepSection(Section):
    """A whole sweep file."""

    title: str = Field("", description="one line for people; unless given, the file's name")
    description: str = Field("", description="what the family asks")
    base: str | None = Field(None, description="a configuration file, seen from this file's directory")
    configuration: dict[str, Any] = Field({}, description="the configuration, or what differs from `base`")
    seeds: str | Annotated[list[Seed], Field(min_length=1)] = Field("1..5", description="`1..5`, or a list of numbers")
    keep: Keep = Field("summaries", description="figures of each run only, or every transaction as well")
    grid: dict[str, Any] = Field({}, description="key to list of values: every combination")
    zip: dict[str, Any] = Field({}, description="key to list of values: row by row")
    members: Annotated[list[dict[str, Any]], Field(alias="list")] = Field(
        [], alias="list", description="members, a table of keys each"
    )

    @field_validator("seeds")
    @classmethod
    def _good_seeds(cls, value: str | list[int]) -> str | list[int]:
        seeds = parse_seeds(value) if isinstance(value, str) else value
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed is there twice; it would give the same run")
        return value

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """The seeds, however they were written."""
        return tuple(parse_seeds(self.seeds) if isinstance(self.seeds, str) else self.seeds)


@dataclass(frozen=True)
class Member:
    """One experiment of a family."""

    settings: Settings
    parameters: Mapping[str, Any]
    """The varied keys and this member's values."""


@dataclass(frozen=True)
class Family:
    """A sweep file, checked: every member's configuration is known to be good."""

    name: str
    title: str
    description: str
    source: str
    text: str
    """The sweep file."""
    base: str
    """The configuration that the members vary, as TOML."""
    seeds: tuple[int, ...]
    keep: Keep
    varied: tuple[str, ...]
    members: tuple[Member, ...]

    @property
    def load_key(self) -> str | None:
        """The varied key that sets the load; None if none does, or several do."""
        keys = [key for key in self.varied if key.startswith(LOADS)]
        return keys[0] if len(keys) == 1 else None

    @property
    def load_unit(self) -> str:
        """What a load is a number of."""
        return load_of(self.members[0].settings)[1]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the configurations' warnings say, each once."""
        return tuple(dict.fromkeys(warning for member in self.members for warning in member.settings.warnings))


def load_of(settings: Settings) -> tuple[float, str]:
    """Return the nominal load and its unit: arrivals a second, or the writers of a closed loop."""
    transaction = settings.values.transaction
    if transaction.arrivals == "closed" or transaction.inter_arrival is None:
        return float(transaction.writers or 0), "writers"
    return float(f"{1000.0 / mean_ms(transaction.inter_arrival):.4g}"), "arrivals/s"


def load_family(path: str, overrides: Sequence[str] = ()) -> Family:
    """Read a sweep file and check every member. Raises `ConfigurationError` with every fault."""
    return parse_family(read_text(Path(path)), path, overrides)


def parse_family(text: str, source: str, overrides: Sequence[str] = ()) -> Family:
    """Check a sweep given as text; `overrides` go into every member's configuration, as `--set` does."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(source, [f"not valid TOML: {error}"]) from error
    sweep, faults = faults_of(SweepSection, data)
    if not LABEL.fullmatch(Path(source).stem):
        raise ConfigurationError(source, ["the file's name must be letters, digits, dots, dashes and underscores"])
    if sweep is None or faults:
        raise ConfigurationError(source, [str(fault) for fault in faults])
    varied = _rows(sweep, source)
    _check_overrides(varied, overrides)
    base, place = _base(sweep, source)
    return Family(
        name=Path(source).stem,
        title=sweep.title or Path(source).stem.replace("_", " "),
        description=sweep.description,
        source=source,
        text=text,
        base=tomli_w.dumps(base),
        seeds=sweep.seed_numbers,
        keep=sweep.keep,
        varied=tuple(dict.fromkeys(key for row in varied for key in row)),
        members=_members(base, place, varied, source, overrides),
    )


def _rows(sweep: SweepSection, source: str) -> list[Row]:
    parts = dict(pairs(sweep.grid)), dict(pairs(sweep.zip)), [dict(pairs(member)) for member in sweep.members]
    faults = [str(fault) for fault in row_faults(*parts)]
    if faults:
        raise ConfigurationError(source, faults)
    return rows(*parts)


def _check_overrides(varied: Sequence[Row], overrides: Sequence[str]) -> None:
    """Refuse overrides of what the sweep varies: all members would be one."""
    keys = {key for row in varied for key in row}
    for override in overrides:
        name = override.partition("=")[0].strip()
        clash = [key for key in keys if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}.")]
        if clash:
            raise ConfigurationError("--set", [f"{name}: the sweep varies {clash[0]}; change the file instead"])


def _base(sweep: SweepSection, source: str) -> tuple[dict[str, Any], str]:
    """Return the configuration that the members vary, and the file that paths in it are seen from."""
    if sweep.base is None:
        return sweep.configuration, source
    path = Path(source).parent / sweep.base
    try:
        base = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(str(path), [f"not valid TOML: {error}"]) from error
    for key, value in pairs(sweep.configuration):
        put(base, key, value)
    return base, str(path)


def _members(
    base: Mapping[str, Any], place: str, varied: Sequence[Row], source: str, overrides: Sequence[str]
) -> tuple[Member, ...]:
    members: list[Member] = []
    faults: dict[str, list[str]] = {}
    sources: dict[str, None] = {}
    for row in varied:
        data = copy.deepcopy(dict(base))
        try:
            for key, value in row.items():
                put(data, key, value)
            members.append(Member(parse_configuration(tomli_w.dumps(data), place, overrides), row))
        except ConfigurationError as error:
            sources[error.source.replace(place, source)] = None
            for fault in error.errors:
                faults.setdefault(fault, []).append(", ".join(f"{key} = {value}" for key, value in row.items()))
    if faults:
        told = [fault if len(rows) == len(varied) else f"{fault} (with {rows[0]})" for fault, rows in faults.items()]
        raise ConfigurationError(" and ".join(sources), list(_shown(told)))
    return tuple(members)


def _shown(faults: Sequence[str]) -> Iterator[str]:
    yield from faults[:FAULTS_SHOWN]
    if len(faults) > FAULTS_SHOWN:
        yield f"and {len(faults) - FAULTS_SHOWN} more"
