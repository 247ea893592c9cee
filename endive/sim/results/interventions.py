"""Interventions: the changes to a configuration that `endive advise` tries.

Each function yields the changes of one kind that make sense for a configuration, as new values of keys and keys to
leave out. Whether a changed configuration is valid is decided when it is loaded.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import tomli_w

from endive.sim.config.catalogs import load_presets
from endive.sim.config.configuration import Settings, parse_configuration, put
from endive.sim.config.distributions import DistributionSection
from endive.sim.config.schema import TransactionSection
from endive.sim.results.axis import axis_of, shrunk
from endive.wording import counted

PARTS = (5, 10)
"""Commits that a compaction job is divided into."""
RETRIES = (10, 30)
STORE_CLASSES = {"s3": "s3x", "s3x": "s3", "azure": "azurex", "azurex": "azure"}
"""The other class of the same vendor's store."""
CATALOG_KEYS = tuple(
    f"catalog.{key}"
    for key in ("type", "conflict_granularity", "table_groups", "table_metadata_inlined", "service", "latency_ms")
)
"""Keys that a preset decides."""
GROUP_COMMIT = ("endive", "endive-shared")


@dataclass(frozen=True)
class Intervention:
    """One change of a configuration, and what it means outside of the model."""

    kind: str
    advice: str
    """Imperative, without a full stop."""
    values: Mapping[str, object]
    """Dotted keys and their new values."""
    leaves_out: tuple[str, ...] = ()
    """Keys that are no longer given, so that their defaults hold."""
    caveat: str = ""
    """Costs of the change that the simulator does not count."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Keys that are varied as `endive capacity --over` does: by name, with their new values."""

    def applied(self, settings: Settings) -> Settings:
        """Return the changed configuration. `ConfigurationError`: the change does not apply."""
        data = tomllib.loads(settings.text)
        for key in self.leaves_out:
            _leave_out(data, key)
        for key, value in self.values.items():
            put(data, key, value)
        changed = parse_configuration(tomli_w.dumps(data), settings.source)
        for name, number in self.numbers.items():
            changed = axis_of(changed, name).at(number)
        return changed


def _leave_out(data: dict[str, object], key: str) -> None:
    *tables, name = key.split(".")
    inner: object = data
    for table in tables:
        inner = inner.get(table) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(name, None)


def interventions_of(settings: Settings) -> list[Intervention]:
    """Return the interventions that exist for a configuration; those that change nothing are left out."""
    found = [one for kind in KINDS for one in kind(settings)]
    return [one for one in found if one.leaves_out or one.numbers or _changes(settings, one)]


def _changes(settings: Settings, one: Intervention) -> bool:
    return any(_current(settings, key) != value for key, value in one.values.items())


def _current(settings: Settings, key: str) -> object:
    found: object = settings.values
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    return found


def _classes(settings: Settings) -> Iterator[tuple[str, str, TransactionSection]]:
    """Yield the place of each class in the file, its name in a sentence, and its values."""
    for name, one in settings.values.by_class().items():
        of_class = bool(settings.values.workload)
        yield (f"workload.{name}" if of_class else "transaction", f" of {name}" if of_class else "", one.transaction)


def _is_compaction(section: TransactionSection) -> bool:
    return section.operation_types.rewrite == section.operation_types.total


def _retries(settings: Settings) -> Iterator[Intervention]:
    for place, of_class, section in _classes(settings):
        retry = section.retry or 0
        for count in (count for count in RETRIES if count > retry):
            advice = f"Raise the retries{of_class} from {retry} to {count}"
            yield Intervention("retries", advice, {f"{place}.retry": count})


def _backoff(settings: Settings) -> Iterator[Intervention]:
    for place, of_class, section in _classes(settings):
        backoff = section.retry_backoff
        if not backoff.enabled:
            advice = f"Wait between retries{of_class}: 100 ms, doubled each time"
            values = {"enabled": True, "base_ms": 100.0, "max_ms": 60_000.0}
            yield Intervention("backoff", advice, {f"{place}.retry_backoff.{key}": one for key, one in values.items()})
            continue
        base_ms, longest_ms = backoff.base_ms or 0.0, backoff.max_ms or 0.0
        for factor, word in ((5.0, "Lengthen"), (0.2, "Shorten")):
            if 0 < base_ms * factor <= longest_ms:
                advice = f"{word} the first wait between retries{of_class} from {base_ms:g} to {base_ms * factor:g} ms"
                yield Intervention("backoff", advice, {f"{place}.retry_backoff.base_ms": base_ms * factor})
        if backoff.jitter < 1:
            advice = f"Spread the waits between retries{of_class} by a jitter of 100 %"
            yield Intervention("backoff", advice, {f"{place}.retry_backoff.jitter": 1.0})


def _commit_interval(settings: Settings) -> Iterator[Intervention]:
    caveat = "data becomes visible later, and each commit is larger"
    for place, of_class, section in _classes(settings):
        if _is_compaction(section):
            continue
        for factor in (2.0, 5.0):
            if section.arrivals == "triggered" and section.interval_ms:
                now, later = section.interval_ms, section.interval_ms * factor
                advice = f"Commit every {later / 1000:g} s instead of every {now / 1000:g} s{_in(of_class)}"
                yield Intervention("commit interval", advice, {f"{place}.interval_ms": later}, caveat=caveat)
            elif section.arrivals == "open" and section.inter_arrival:
                advice = f"Put {factor:g} transactions{of_class} into one commit"
                values = {f"{place}.inter_arrival": _scaled(section.inter_arrival, factor)}
                yield Intervention("commit interval", advice, values, caveat=caveat)
            elif section.arrivals == "closed" and (section.writers or 1) >= factor:
                fewer = round((section.writers or 1) / factor)
                advice = f"Collect the commits{of_class} in {fewer} writers instead of {section.writers}"
                yield Intervention("commit interval", advice, {f"{place}.writers": fewer}, caveat=caveat)


def _in(of_class: str) -> str:
    return of_class.replace(" of", " in")


def _tables(settings: Settings) -> Iterator[Intervention]:
    count = settings.values.catalog.num_tables
    for number, word in ((2 * count, "Divide the data over"), (count // 2, "Bring the data together in")):
        if number >= 1:
            advice = f"{word} {counted(number, 'table')} instead of {count}"
            caveat = "readers must know the new tables"
            yield Intervention("tables", advice, {}, caveat=caveat, numbers={"catalog.num_tables": float(number)})


def _granularity(settings: Settings) -> Iterator[Intervention]:
    catalog = settings.values.catalog
    tracked = any(section.partitions.per_txn for _, _, section in _classes(settings))
    for granularity in ("table", "partition"):
        if granularity == catalog.conflict_granularity or (granularity == "partition" and not tracked):
            continue
        if catalog.conflict_granularity == "partition":
            continue
        advice = f"Use a catalog that checks a commit against its {granularity} only"
        values: dict[str, object] = {"catalog.conflict_granularity": granularity}
        if catalog.type in ("cas", "instant"):
            values["catalog.table_groups"] = catalog.num_tables
        caveat = "no Iceberg catalog does so yet" if granularity == "partition" else ""
        yield Intervention("granularity", advice, values, caveat=caveat)


def _store_class(settings: Settings) -> Iterator[Intervention]:
    other = STORE_CLASSES.get(settings.values.storage.provider)
    if other is not None and settings.profile_set != "own":
        advice = f"Move the metadata from {settings.values.storage.provider} to {other}"
        caveat = "bytes and storage have other prices; durability and zones differ"
        yield Intervention("store class", advice, {"storage.provider": other}, caveat=caveat)


def _presets(settings: Settings) -> Iterator[Intervention]:
    for name, preset in load_presets().items():
        if name == settings.values.catalog.preset:
            continue
        kind = "group commit" if name in GROUP_COMMIT else "catalog"
        advice = f"Use the catalog `{name}` ({preset.title})"
        yield Intervention(kind, advice, {"catalog.preset": name}, CATALOG_KEYS, "moving tables to another catalog")


def _compaction(settings: Settings) -> Iterator[Intervention]:
    for place, of_class, section in _classes(settings):
        if not _is_compaction(section):
            continue
        runtime = section.runtime
        if section.arrivals == "triggered" and section.interval_ms:
            interval_ms = section.interval_ms
            longer = {f"{place}.interval_ms": 2 * interval_ms, f"{place}.runtime": _scaled(runtime, 2.0)}
            shorter = {f"{place}.interval_ms": interval_ms / 2, f"{place}.runtime": _scaled(runtime, 0.5)}
            yield Intervention("compaction", f"Run the jobs{of_class} half as often, each twice as long", longer)
            yield Intervention("compaction", f"Run the jobs{of_class} twice as often, each half as long", shorter)
        for parts in (parts for parts in PARTS if parts > section.partial_progress_commits):
            advice = f"Let the jobs{of_class} commit partial progress in {parts} commits"
            yield Intervention("partial progress", advice, {f"{place}.partial_progress_commits": parts})


def _scaled(section: DistributionSection, factor: float) -> dict[str, object]:
    return shrunk(section, 1 / factor).model_dump(exclude_none=True)


def _manifest_reuse(settings: Settings) -> Iterator[Intervention]:
    merging = ("append", "merge_append")
    for place, of_class, section in _classes(settings):
        mix = section.operation_types.model_dump()
        moved = sum(mix[kind] for kind in merging)
        if moved:
            values = {kind: weight for kind, weight in mix.items() if weight and kind not in merging}
            values["fast_append"] = mix["fast_append"] + moved
            advice = f"Use fast appends{of_class}, which merge no manifests"
            caveat = "manifests must be rewritten by maintenance, or reads become slower"
            yield Intervention("manifest reuse", advice, {f"{place}.operation_types": values}, caveat=caveat)
        if not section.manifest_reuse and section.cost_model != "pyiceberg":
            advice = f"Use the manifest of the first attempt again in retries{of_class}"
            yield Intervention("manifest reuse", advice, {f"{place}.manifest_reuse": True})
        if section.cost_model == "pyiceberg":
            advice = f"Commit{_in(of_class)} with Iceberg's Java library, which reuses its manifests"
            yield Intervention("manifest reuse", advice, {f"{place}.cost_model": "iceberg"})
    transaction = settings.values.transaction
    if transaction.manifest_list_mode == "rewrite" and settings.profile.find("append", "manifest_list"):
        advice = "Append to manifest lists instead of rewriting them (ML+)"
        values = {"transaction.manifest_list_mode": "append", "transaction.manifest_list_entries": "kept"}
        yield Intervention("manifest reuse", advice, values, caveat="a proposal; no library has it yet")


KINDS: tuple[Callable[[Settings], Iterator[Intervention]], ...] = (
    _retries,
    _backoff,
    _commit_interval,
    _tables,
    _granularity,
    _store_class,
    _presets,
    _compaction,
    _manifest_reuse,
)
