"""Sweep files: a group of experiments that vary one configuration.

    title = "Catalog latency"
    base = "fast_append.toml"                  # a configuration, relative to this file; or [configuration] below
    seeds = "1..5"
    success = 0.95                             # the share of commits that makes a throughput sustainable

    [grid]                                     # every combination
    "storage.provider" = ["s3", "s3x"]
    "transaction.inter_arrival.scale" = [20, 50, 100]

    [zip]                                      # columns of one length, row by row
    [[list]]                                   # variations one by one

A group holds every combination of the listed variations, the zipped rows and the grid. All configurations are checked
before anything runs, and all errors are reported at once.
"""

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, field_validator

from endive.errors import ConfigurationError
from endive.pipeline.variations import Variation, combinations, dotted_pairs, variation_errors
from endive.sim.config.configuration import Settings, parse_configuration, put
from endive.sim.config.defaults import mean_ms
from endive.sim.config.profiles import read_text
from endive.sim.config.schema import LABEL, SEED_MAX, Section
from endive.sim.config.seeds import parse_seeds
from endive.sim.config.validation import validated

Keep = Literal["summaries", "transactions"]
Seed = Annotated[int, Field(ge=0, le=SEED_MAX, strict=True)]

ERRORS_SHOWN = 10
"""An error in the base configuration repeats in every experiment; the first few are enough."""

LOAD_KEY = re.compile(r"(transaction|workload\.[^.]+)\.(inter_arrival|writers)(\..*)?")
"""Keys that set the offered load: of all transactions, or of a class."""

LISTED = "experiments are listed one by one in [[list]] tables"


class SweepSection(Section):
    """The keys of a sweep file."""

    title: str = Field("", description="one line for the report; by default the file's name")
    description: str = Field("", description="the question that the group answers")
    base: str | None = Field(None, description="a configuration file, relative to this file's directory")
    configuration: dict[str, Any] = Field({}, description="the configuration, or the keys that differ from `base`")
    seeds: str | Annotated[list[Seed], Field(min_length=1)] = Field("1..5", description="`1..5`, or a list of numbers")
    success: float = Field(
        0.95, gt=0, le=1, description="success target: share of commits that makes a load sustainable"
    )
    keep: Keep = Field("summaries", description="keep the metrics of each run only, or every transaction as well")
    grid: dict[str, Any] = Field({}, description="key to list of values: every combination")
    zip: dict[str, Any] = Field({}, description="key to list of values: row by row")
    list: Any = Field([], description="variations one by one, a table of keys each")

    @field_validator("seeds")
    @classmethod
    def _good_seeds(cls, value: Any) -> Any:  # noqa: ANN401 - `list` is a field here
        seeds = parse_seeds(value) if isinstance(value, str) else value
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed is given twice; it would repeat the same run")
        return value

    @field_validator("list")
    @classmethod
    def _tables(cls, value: Any) -> Any:  # noqa: ANN401 - a user's
        if not isinstance(value, Sequence) or not all(isinstance(entry, Mapping) for entry in value):
            raise ValueError(LISTED)
        return value

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """The seeds as numbers."""
        return tuple(parse_seeds(self.seeds) if isinstance(self.seeds, str) else self.seeds)


@dataclass(frozen=True)
class Experiment:
    """One configuration of a group."""

    settings: Settings
    parameters: Mapping[str, Any]
    """The varied keys and this experiment's values."""


@dataclass(frozen=True)
class ExperimentGroup:
    """A sweep file whose configurations have all been checked."""

    name: str
    title: str
    description: str
    source: str
    text: str
    """The sweep file."""
    base: str
    """The configuration that the experiments vary, as TOML."""
    seeds: tuple[int, ...]
    success_target: float
    keep: Keep
    varied: tuple[str, ...]
    experiments: tuple[Experiment, ...]

    @property
    def load_key(self) -> str | None:
        """The varied key that sets the offered load; None if none does, or several do."""
        keys = [key for key in self.varied if LOAD_KEY.fullmatch(key)]
        return keys[0] if len(keys) == 1 else None

    @property
    def load_unit(self) -> str:
        """Unit of the offered load."""
        return offered_load(self.experiments[0].settings, self.load_key)[1]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of all configurations, each once."""
        return tuple(dict.fromkeys(warning for one in self.experiments for warning in one.settings.warnings))


def offered_load(settings: Settings, load_key: str | None = None) -> tuple[float, str]:
    """Return the nominal offered load and its unit: arrivals a second, or writers.

    Of several classes it is the load of the one that `load_key` belongs to, or of the first.
    """
    classes = settings.values.by_class()
    named = (load_key or "").split(".")
    name = named[1] if named[0] == "workload" and named[1] in classes else next(iter(classes))
    transaction = classes[name].transaction
    if transaction.arrivals != "open" or transaction.inter_arrival is None:
        return float(transaction.writers or 0), "writers"
    return float(f"{1000.0 / mean_ms(transaction.inter_arrival):.4g}"), "arrivals/s"


def load_group(path: str, overrides: Sequence[str] = (), changes: Mapping[str, Any] | None = None) -> ExperimentGroup:
    """Read a sweep file and check every experiment. `ConfigurationError` lists every error."""
    return parse_group(read_text(Path(path)), path, overrides, changes)


def parse_group(
    text: str, source: str, overrides: Sequence[str] = (), changes: Mapping[str, Any] | None = None
) -> ExperimentGroup:
    """Check a sweep given as text.

    `overrides` change every experiment's configuration, as `--set` does; `changes` replace keys of the sweep file
    itself, such as `seeds`.
    """
    try:
        data = {**tomllib.loads(text), **(changes or {})}
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(source, [f"not valid TOML: {error}"]) from error
    if not LABEL.fullmatch(Path(source).stem):
        raise ConfigurationError(source, ["the file's name must be letters, digits, dots, dashes and underscores"])
    unlisted = [
        f"{key}: unknown key; {LISTED}" for key in ("members", "experiments") if data.pop(key, None) is not None
    ]
    sweep, found = validated(SweepSection, data)
    if sweep is None or found or unlisted:
        raise ConfigurationError(source, [*unlisted, *map(str, found)])
    varied = _variations(sweep, source)
    _check_overrides(varied, overrides)
    base, place = _base(sweep, source)
    return ExperimentGroup(
        name=Path(source).stem,
        title=sweep.title or Path(source).stem.replace("_", " "),
        description=sweep.description,
        source=source,
        text=text,
        base=tomli_w.dumps(base),
        seeds=sweep.seed_numbers,
        success_target=sweep.success,
        keep=sweep.keep,
        varied=tuple(dict.fromkeys(key for variation in varied for key in variation)),
        experiments=_experiments(base, place, varied, source, overrides),
    )


def _variations(sweep: SweepSection, source: str) -> list[Variation]:
    listed = [dict(dotted_pairs(entry)) for entry in sweep.list]
    parts = dict(dotted_pairs(sweep.grid)), dict(dotted_pairs(sweep.zip)), listed
    found = [str(error) for error in variation_errors(*parts)]
    if found:
        raise ConfigurationError(source, found)
    return combinations(*parts)


def _check_overrides(varied: Sequence[Variation], overrides: Sequence[str]) -> None:
    """Refuse overrides of keys that the sweep varies: all experiments would be the same."""
    keys = {key for variation in varied for key in variation}
    for override in overrides:
        name = override.partition("=")[0].strip()
        clash = [key for key in keys if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}.")]
        if clash:
            raise ConfigurationError("--set", [f"{name}: the sweep varies {clash[0]}; change the file instead"])


def _base(sweep: SweepSection, source: str) -> tuple[dict[str, Any], str]:
    """Return the configuration that the experiments vary, and the file to which its paths are relative."""
    if sweep.base is None:
        return sweep.configuration, source
    path = Path(source).parent / sweep.base
    try:
        base = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(str(path), [f"not valid TOML: {error}"]) from error
    for key, value in dotted_pairs(sweep.configuration):
        put(base, key, value)
    return base, str(path)


def _experiments(
    base: Mapping[str, Any], place: str, varied: Sequence[Variation], source: str, overrides: Sequence[str]
) -> tuple[Experiment, ...]:
    experiments: list[Experiment] = []
    found: dict[str, list[str]] = {}
    sources: dict[str, None] = {}
    for variation in varied:
        data = copy.deepcopy(dict(base))
        try:
            for key, value in variation.items():
                put(data, key, value)
            experiments.append(Experiment(parse_configuration(tomli_w.dumps(data), place, overrides), variation))
        except ConfigurationError as error:
            sources[error.source.replace(place, source)] = None
            for message in error.errors:
                found.setdefault(message, []).append(", ".join(f"{key} = {value}" for key, value in variation.items()))
    if found:
        messages = [text if len(where) == len(varied) else f"{text} (with {where[0]})" for text, where in found.items()]
        raise ConfigurationError(" and ".join(sources), list(_shown(messages)))
    return tuple(experiments)


def _shown(messages: Sequence[str]) -> Iterator[str]:
    yield from messages[:ERRORS_SHOWN]
    if len(messages) > ERRORS_SHOWN:
        yield f"and {len(messages) - ERRORS_SHOWN} more"
