"""Configuration: from TOML to a `SimulationConfig`.

`load_configuration` reads and validates a file completely before anything is built; `Settings.build` then builds a
`SimulationConfig`. `load_simulation_config` does both. `settings_of` takes a dictionary, a path or TOML text.
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from endive.errors import ConfigurationError, ErrorCollector
from endive.rng import Stream
from endive.sim.catalog import AppendCatalog, CASCatalog, Catalog, InstantCatalog, LogLimits, ServiceCatalog
from endive.sim.config.building import build_classes
from endive.sim.config.catalogs import load_presets
from endive.sim.config.choices import Choices
from endive.sim.config.classes import class_sections, unused_shared_keys, warnings_by_class
from endive.sim.config.defaults import Origins, complete, contradictions, mean_ms, partition_counts
from endive.sim.config.distributions import DistributionSection
from endive.sim.config.effects import ineffective
from endive.sim.config.profiles import load_clients, load_profile_file, load_profile_set, read_text, share_of
from endive.sim.config.schema import Configuration
from endive.sim.config.validation import InvalidKey, validated, without_consequences
from endive.sim.cost import COST_MODELS
from endive.sim.latency import (
    BYTES_PER_MIB,
    LatencyDistribution,
    LognormalLatency,
    SizeBasedLatency,
)
from endive.sim.limits import Contention, PrefixLimit, RateLimit
from endive.sim.results.summary import Window
from endive.sim.simulation import SimulationConfig
from endive.sim.storage import Profile, ProfiledProvider
from endive.wording import suggestion

MODEL_VERSION = 8
"""Raised when the same configuration and seed give other results than before."""

SET = "--set"
"""The option that replaces values of a file."""

SWEEP_KEYS = frozenset({"grid", "zip", "list", "base", "configuration"})
"""Keys of a sweep file that no configuration has."""

MEAN_SHIFT_MAX = 0.05
"""A floor that raises a mean by more than this share causes a warning."""

PROVIDER_PROFILES: Mapping[str, Profile] = load_profile_set("spec")
"""The profiles of the set `spec`, by name."""


@dataclass(frozen=True)
class Settings:
    """A valid configuration: the effective values, and the origin of each."""

    source: str
    values: Configuration
    profile: Profile
    """The provider's latencies, with those of the file in their place."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys that were set, and by what: the file or `--set`."""
    origins: Origins = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    text: str = ""
    """The configuration as it was given, overrides included."""
    profile_set: str = "spec"
    """Origin of the provider's latencies: a set's name, or `own` for a profile of the user's file."""

    @cached_property
    def service(self) -> Profile | None:
        """The catalog's server. None: the catalog has none."""
        catalog = self.values.catalog
        if catalog.type != "service":
            return None
        return catalog.service.build(self.profile, self.values.transaction.table_metadata_bytes)

    @property
    def trust(self) -> dict[str, dict[str, str]]:
        """How far each part of the model was checked: provider, catalog, cost models."""
        catalog = self.values.catalog
        preset = load_presets()[catalog.preset] if catalog.preset else None
        models = [COST_MODELS[name] for name in self.cost_models.split(", ")]
        parts = {f"provider {self.profile.name}": (self.profile.trust, self.profile.checked)}
        if preset:
            parts[f"catalog {catalog.preset}"] = (preset.trust, preset.checked)
        parts |= {f"cost model {model.name}": (model.trust, model.checked) for model in models}
        if self.profile.prefix_limit.is_set:
            parts["prefix limits"] = ("unchecked", "rates as documented; that requests ask together is an assumption")
        if self._grows:
            parts["growth of metadata"] = ("unchecked", "sizes as Iceberg writes them; their latency is an assumption")
        return {part: {"trust": trust, "checked": checked} for part, (trust, checked) in parts.items()}

    @property
    def _grows(self) -> bool:
        """Whether metadata of tables grows, and with it the latency of requests."""
        tables = self.values.transaction
        return bool(tables.snapshot_bytes or tables.manifest_list_growth_bytes)

    @property
    def catalog_name(self) -> str:
        """The kind of catalog and its granularity, in words."""
        catalog = self.values.catalog
        return f"{catalog.preset or catalog.type} catalog, granularity {catalog.conflict_granularity}"

    @property
    def label(self) -> str:
        """The experiment's name: as given, else the file's."""
        return self.values.experiment.label or Path(self.source).stem

    @property
    def window(self) -> Window:
        """The part of the run that the metrics cover."""
        simulation = self.values.simulation
        return Window(simulation.trim_start_ms or 0.0, simulation.duration_ms - (simulation.trim_end_ms or 0.0))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes of transactions, in the file's order."""
        return tuple(self.values.by_class())

    @property
    def cost_models(self) -> str:
        """The cost model, or those of the classes."""
        models = dict.fromkeys(one.transaction.cost_model for one in self.values.by_class().values())
        return ", ".join(models)

    def with_inter_arrival(self, inter_arrival: DistributionSection) -> "Settings":
        """Return the same configuration with another distribution of arrivals."""
        transaction = self.values.transaction.model_copy(update={"inter_arrival": inter_arrival})
        return replace(self, values=self.values.model_copy(update={"transaction": transaction}))

    def build(self, seed: int | None = None) -> SimulationConfig:
        """Return a fresh simulation's configuration; its catalog and storage belong to that one run."""
        chosen = self.values.simulation.seed if seed is None else seed
        return _build(self.values, self.profile, self.service, chosen)

    def experiment_hash(self) -> str:
        """Return the hash of the parameters: equal for equal results, whatever the seed, label and output."""
        return compute_experiment_hash(self)


def load_simulation_config(config_path: str, *, seed_override: int | None = None) -> SimulationConfig:
    """Load a configuration and build it. Raises `ConfigurationError` with every validation error of the file."""
    return load_configuration(config_path).build(seed_override)


Source = str | Path | Mapping[str, Any] | Settings
"""A configuration: a path, TOML text (a string of several lines), a dictionary, or one that is loaded already."""
Overrides = Mapping[str, object] | Sequence[str]
"""Values that replace the configuration's: dotted keys to values, or `key=value` texts."""


def settings_of(source: Source, overrides: Overrides = ()) -> Settings:
    """Validate a configuration, however it is given. Raises `ConfigurationError` with every validation error."""
    overrides = override_texts(overrides)
    if isinstance(source, Settings):
        return parse_configuration(source.text, source.source, overrides) if overrides else source
    if isinstance(source, Mapping):
        try:
            return parse_configuration(tomli_w.dumps(source), overrides=overrides)
        except TypeError as error:  # a value that TOML does not have, such as None
            raise ConfigurationError("configuration", [str(error)]) from error
    if is_text(source):
        return parse_configuration(str(source), overrides=overrides)
    return load_configuration(str(source), overrides)


def override_texts(overrides: Overrides) -> Sequence[str]:
    """Return overrides as `key=value` texts."""
    if isinstance(overrides, Mapping):
        return [f"{key}={inline_toml(value)}" for key, value in overrides.items()]
    return overrides


def is_text(source: object) -> bool:
    """Whether a string is TOML text: it has several lines, which no path has."""
    return isinstance(source, str) and "\n" in source


def inline_toml(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {inline_toml(part)}" for name, part in value.items()) + " }"
    return json.dumps(value)


def load_configuration(path: str, overrides: Sequence[str] = ()) -> Settings:
    """Read a TOML file, apply `key=value` overrides, and validate everything."""
    return parse_configuration(read_text(Path(path)), path, overrides)


def parse_configuration(text: str, source: str = "configuration", overrides: Sequence[str] = ()) -> Settings:
    """Validate a configuration given as text. `source` names it in messages and is the base of its paths."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(source, [f"not valid TOML: {error}"]) from error
    if SWEEP_KEYS & data.keys():
        remedy = f"run it with `endive sweep {source}`"
        raise ConfigurationError(source, [f"this is a sweep file, not a configuration: {remedy}"])
    origin = dict.fromkeys(_dotted(data), Path(source).name)
    errors = ErrorCollector()
    for override in overrides:
        with errors.collected():
            key = _apply(data, override)
            origin |= dict.fromkeys([name for name in _dotted(data) if name == key or name.startswith(f"{key}.")], SET)
    errors.raise_for(SET)
    given = {name: origin[name] for name in _dotted(data)}
    try:
        settings = _check(data, source, given)
    except ConfigurationError as error:
        raise (error.after(_errors_alone(text, source), SET) if overrides else error) from error
    return replace(settings, text=tomli_w.dumps(data) if overrides else text)


def _errors_alone(text: str, source: str) -> ConfigurationError | None:
    """Return the errors of a configuration without overrides."""
    try:
        parse_configuration(text, source)
    except ConfigurationError as error:
        return error
    return None


def _check(data: Mapping[str, Any], source: str, given: Mapping[str, str]) -> Settings:
    config, invalid = validated(Configuration, {key: part for key, part in data.items() if key != "workload"})
    sections, of_classes = class_sections(data.get("workload", {}), data.get("transaction"), invalid)
    invalid += of_classes
    if config is None:
        raise ConfigurationError(source, [str(one) for one in invalid])
    config = config.model_copy(update={"workload": sections})
    found, more = _find_provider(config, source)
    profile = _adjusted(found.profile, config)
    config, origins = complete(config, profile)
    invalid += more
    names_classes = bool(data.get("workload")) or any(one.meant == "workload" for one in invalid)
    if sections or not names_classes:
        invalid += contradictions(config, None if more else profile)
    if invalid:
        raise ConfigurationError(source, [str(one) for one in without_consequences(invalid)])

    def warn(one: Configuration, given_in_class: Mapping[str, str]) -> Mapping[str, str]:
        choices = Choices(one, profile, found.profile, found.own)
        return {**ineffective(choices, given_in_class), **_shifted_means(one)}

    warnings = (*warnings_by_class(config, given, warn), *unused_shared_keys(config, given))
    profile_set = "own" if found.own else config.storage.profiles
    return Settings(source, config, profile, given, origins, warnings, profile_set=profile_set)


def _shifted_means(config: Configuration) -> dict[str, str]:
    """Warn of distributions whose floor moves their mean well away from the given one."""
    transaction, warnings = config.transaction, dict[str, str]()
    for name, section in (("inter_arrival", transaction.inter_arrival), ("runtime", transaction.runtime)):
        stated = None if section is None else section.mean or section.scale
        if section is not None and stated and abs(mean_ms(section) / stated - 1) > MEAN_SHIFT_MAX:
            found = f"{mean_ms(section):.4g} instead of {stated:g}"
            problem = f"draws below `min` (or 0) are raised to it, so the mean is about {found}"
            warnings[f"transaction.{name}:"] = problem
    return warnings


class _Found(NamedTuple):
    profile: Profile
    own: bool
    """It comes from the user's file."""


def _find_provider(config: Configuration, source: str) -> tuple[_Found, list[InvalidKey]]:
    """Return the provider's profile; if there is no such provider, a stand-in and the errors."""
    storage = config.storage
    known = dict(load_profile_set(storage.profiles))
    if storage.profiles == "measured":
        known |= {"instant": PROVIDER_PROFILES["instant"]}  # nothing to measure
    stand_in, own = _Found(known["s3"], own=False), dict[str, Profile]()
    if storage.profile_file is not None:
        try:
            own = load_profile_file(Path(source).parent / storage.profile_file)
        except ConfigurationError as error:
            return stand_in, [InvalidKey(f"storage.profile_file: {error.source}: {one}") for one in error.errors]
    known |= own
    if not storage.provider:
        return stand_in, [InvalidKey("storage.provider", f"required; one of {', '.join(known)}")]
    if storage.provider not in known:
        hint = suggestion(storage.provider, known) or f"; known: {', '.join(known)}"
        return stand_in, [InvalidKey("storage.provider", f"no profile {storage.provider!r}{hint}")]
    return _Found(known[storage.provider], storage.provider in own), []


def _adjusted(profile: Profile, config: Configuration) -> Profile:
    """Replace latencies and switches of the profile by those of the file."""
    storage = config.storage
    explicit = {name: row.build() for name, row in storage.latency if isinstance(row, DistributionSection)}
    latencies = {
        name: row for name, row in profile.latencies.items() if storage.failure_latency or not name.endswith("_failure")
    } | explicit
    tables = config.transaction
    lists_grow = tables.manifest_list_growth_bytes > 0 or tables.manifest_list_mode == "append"
    for kind, grows, size_bytes in (
        ("manifest_list", lists_grow, tables.manifest_list_bytes),
        ("table_metadata", tables.snapshot_bytes > 0, tables.table_metadata_bytes),
    ):
        if grows and not (explicit.get(f"{kind}_read") or explicit.get("read")):
            latencies[f"{kind}_read"] = _grown(latencies, kind, size_bytes)
    return replace(
        profile,
        latencies=latencies,
        contention=profile.contention if storage.contention else Contention(),
        append_contention=profile.append_contention if storage.contention else None,
        decision=profile.decision if storage.decision is None else share_of(storage.decision),
        append_decision=profile.append_decision if storage.decision is None else None,
        object_limit=profile.object_limit if storage.limits else RateLimit(),
        prefix_limit=replace(profile.prefix_limit, per_table=storage.prefix == "table")
        if storage.prefix_limits
        else PrefixLimit(),
        client=load_clients()[storage.client] if storage.client else profile.client,
    )


def _grown(latencies: Mapping[str, LatencyDistribution], kind: str, size_bytes: int) -> LatencyDistribution:
    """Return the read latency of a kind of object that grows.

    It is the profile's at the initial size, and grows with each MiB as that of a write does, if both are lognormal;
    else it stays the profile's.
    """
    read = latencies.get(f"{kind}_read", latencies["read"])
    write = latencies.get(f"{kind}_write", latencies["write"])
    if isinstance(read, LognormalLatency) and isinstance(write, SizeBasedLatency):
        per_mib_ms = write.latency_per_mib_ms
        base_ms = max(math.exp(read.mu) - per_mib_ms * size_bytes / BYTES_PER_MIB, 0.0)
        return SizeBasedLatency(base_ms, per_mib_ms, read.sigma, read.min_latency_ms)
    return read


def _build(config: Configuration, profile: Profile, service: Profile | None, seed: int) -> SimulationConfig:
    classes = build_classes(config, seed)
    backoff = config.transaction.retry_backoff
    storage = ProfiledProvider(profile, Stream(seed))
    return SimulationConfig(
        duration_ms=config.simulation.duration_ms,
        seed=seed,
        storage_provider=storage,
        catalog=_catalog(config, storage, service),
        workload=classes[0].workload,
        conflict_detector=classes[0].conflict_detector,
        max_retries=classes[0].max_retries,
        ml_append_mode=classes[0].ml_append_mode,
        backoff_enabled=bool(backoff.enabled),
        backoff_base_ms=backoff.base_ms or 0.0,
        backoff_multiplier=backoff.multiplier,
        backoff_max_ms=backoff.max_ms or 0.0,
        backoff_jitter=backoff.jitter,
        backoff_before_read=bool(backoff.before_read),
        options=replace(classes[0].options, backoff=None),
        classes=classes if config.workload else (),
    )


def _catalog(config: Configuration, storage: ProfiledProvider, service: Profile | None) -> Catalog:
    catalog, partitions, groups = config.catalog, partition_counts(config), config.catalog.table_groups or 1
    granularity, manifests = catalog.conflict_granularity or "catalog", config.transaction.table_manifests
    if catalog.type == "append":
        limits = LogLimits(catalog.compaction_threshold, catalog.compaction_max_entries)
        replay_ms = catalog.log_entry_read_ms
        shape = (granularity, limits, replay_ms, manifests, catalog.append_request)
        return AppendCatalog(storage, catalog.num_tables, partitions, *shape)
    if catalog.type == "instant":
        return InstantCatalog(catalog.num_tables, partitions, catalog.latency_ms, granularity, groups, manifests)
    if service is not None:
        return ServiceCatalog(service, catalog.num_tables, partitions, granularity, groups, manifests)
    return CASCatalog(storage, catalog.num_tables, partitions, granularity, groups, manifests)


def compute_experiment_hash(settings: Settings) -> str:
    """Return eight hex digits of everything that the results depend on, except the seed."""
    return experiment_digest(settings)[:8]


def experiment_digest(settings: Settings) -> str:
    """Return the whole digest, to tell thousands of experiments apart."""
    values = settings.values.model_dump(mode="json", exclude={"experiment": True, "storage": {"latency"}})
    for key in ("seed", "output_path", "trim_start_ms", "trim_end_ms"):
        del values["simulation"][key]
    for key in ("profiles", "profile_file", "limits", "client", "decision", "contention", "prefix_limits", "prefix"):
        del values["storage"][key]  # as far as they matter, they are in the profile
    latencies = {name: repr(row) for name, row in sorted(settings.profile.latencies.items())}
    profile = settings.profile
    rules: tuple[object, ...] = (profile.contention, profile.append_contention, profile.object_limit, profile.client)
    if profile.prefix_limit.is_set:
        rules += (profile.prefix_limit,)
    rest = [repr(rules), profile.decision, profile.append_decision, MODEL_VERSION]
    canonical = json.dumps([values, latencies, rest], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _dotted(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, value in data.items():
        keys += _dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [prefix + name]
    return keys


def _apply(data: dict[str, Any], override: str) -> str:
    """Set one `key=value` in `data`; the value is read as TOML, or as a string where it is none."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(SET, [f"{override!r}: expected key=value, such as catalog.num_tables=10"])
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    try:
        put(data, key.strip(), value)
    except ConfigurationError as error:
        raise ConfigurationError(SET, [f"{error.source}: {one}" for one in error.errors]) from error
    return key.strip()


def put(data: dict[str, Any], key: str, value: object) -> None:
    """Set the dotted `key` in nested tables."""
    *tables, name = key.split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise ConfigurationError(key, [f"{table} is a value, not a table"])
    data[name] = value
