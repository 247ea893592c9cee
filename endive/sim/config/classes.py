"""Classes of transactions: `[workload.NAME]` tables, each with the keys of `[transaction]`.

`[transaction]` has the values that the classes share. A class's own value replaces a shared one; in the tables of
`MERGED` it does so key by key. Rules, defaults and warnings are those of `[transaction]`, applied to each class.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from endive.sim.config.schema import CLASS_NAME, Configuration, TransactionSection
from endive.sim.config.validation import InvalidKey, validated

MERGED = frozenset({"tables", "partitions", "retry_backoff", "rate"})
"""Tables of a class whose keys are combined with those of `[transaction]`. Other values replace the shared one."""

OF_TABLES = frozenset(
    {
        "manifest_list_mode",
        "manifest_list_entry_size",
        "manifest_list_seal_threshold",
        "manifest_list_entries",
        "manifest_list_scope",
        "manifest_list_bytes",
        "manifest_list_growth_bytes",
        "table_metadata_bytes",
        "table_manifests",
        "snapshot_bytes",
        "table_snapshots",
        "snapshots_kept",
    }
)
"""Keys that describe the tables, whichever class writes them."""

SHARED_PREFIX = "transaction."
Given = Mapping[str, str]
"""Dotted keys that were set, and by what."""


def class_sections(
    data: object, shared: object, known: Iterable[InvalidKey]
) -> tuple[dict[str, TransactionSection], list[InvalidKey]]:
    """Validate the classes of a file. `known` are the errors of `[transaction]`, which are not repeated."""
    if not isinstance(data, Mapping):
        return {}, [InvalidKey("workload", f"expected tables, such as [workload.streams], but found {data!r}")]
    reported = {str(one).removeprefix(SHARED_PREFIX) for one in known}
    sections: dict[str, TransactionSection] = {}
    invalid: list[InvalidKey] = []
    for name, own in data.items():
        place = f"workload.{name}"
        if not isinstance(own, Mapping):
            invalid.append(InvalidKey(place, "expected a table with the keys of a class, such as [workload.streams]"))
            continue
        if not CLASS_NAME.fullmatch(name):
            invalid.append(InvalidKey(place, "a class's name is letters, digits, dashes and underscores"))
        invalid += [_of_tables(place, key) for key in own if key in OF_TABLES]
        of_class = {key: value for key, value in own.items() if key not in OF_TABLES}
        section, found = validated(TransactionSection, _merged(shared, of_class), place)
        invalid += [one for one in found if str(one).removeprefix(f"{place}.") not in reported]
        if section is not None:
            sections[name] = section
    return sections, invalid


def _of_tables(place: str, key: str) -> InvalidKey:
    problem = f"belongs to the tables, which classes share; set {SHARED_PREFIX}{key}"
    return InvalidKey(f"{place}.{key}", problem)


def _merged(shared: object, own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(shared) if isinstance(shared, Mapping) else {}
    for key, value in own.items():
        before = merged.get(key)
        both = key in MERGED and isinstance(value, Mapping) and isinstance(before, Mapping)
        merged[key] = {**before, **value} if both and isinstance(before, Mapping) else value
    return merged


def in_class(key: str, name: str, config: Configuration) -> str:
    """Return where a key of `[transaction]` is set for one class."""
    return f"workload.{name}.{key.removeprefix(SHARED_PREFIX)}" if config.workload and _is_shared(key) else key


def _is_shared(key: str) -> bool:
    """Whether a key of `[transaction]` may be set for each class."""
    return key.startswith(SHARED_PREFIX) and key.split(".")[1] not in OF_TABLES


def errors_by_class(
    config: Configuration, rules: Callable[[Configuration], Iterable[InvalidKey]]
) -> Iterator[InvalidKey]:
    """Yield the errors of each class; one that is the same in several is yielded once."""
    seen: set[str] = set()
    for name, one in config.by_class().items():
        for error in rules(one):
            place = in_class(error.place, name, config)
            if place not in seen:
                seen.add(place)
                yield replace(error, place=place)


def given_in(given: Given, name: str, config: Configuration) -> Given:
    """Return the keys that were set for one class, under the names that they have in `[transaction]`."""
    if not config.workload:
        return given
    prefix = f"workload.{name}."
    own = {f"{SHARED_PREFIX}{key.removeprefix(prefix)}": by for key, by in given.items() if key.startswith(prefix)}
    return {key: by for key, by in given.items() if not key.startswith("workload.")} | own


def warnings_by_class(
    config: Configuration, given: Given, warnings: Callable[[Configuration, Given], Mapping[str, str]]
) -> list[str]:
    """Return the warnings about keys of all classes.

    A key of a class is named as such. A key that classes share is ineffective only if no class uses it.
    """
    found = {name: warnings(one, given_in(given, name, config)) for name, one in config.by_class().items()}
    messages: dict[str, str] = {}
    for name, ones in found.items():
        for key, message in ones.items():
            place = in_class(key, name, config)
            is_own = place != key and any(_is_at(one, place.partition(" ")[0].rstrip(":")) for one in given)
            if is_own:
                messages[place] = message
            elif all(key in others for others in found.values()):
                messages[key] = message
    return [f"{place} {message}" for place, message in messages.items()]


def _is_at(key: str, place: str) -> bool:
    return key == place or key.startswith(f"{place}.")


def unused_shared_keys(config: Configuration, given: Given) -> list[str]:
    """Return a warning for each key of `[transaction]` that every class replaces."""
    if not config.workload:
        return []
    shared = [key.removeprefix(SHARED_PREFIX) for key in given if _is_shared(key)]
    replaced = [key for key in shared if all(_replaces(name, key, given) for name in config.workload)]
    return [f"{SHARED_PREFIX}{key} has no effect: every class has its own" for key in replaced]


def _replaces(name: str, key: str, given: Given) -> bool:
    table = key.partition(".")[0]
    place = f"workload.{name}.{key if table in MERGED else table}"
    return any(_is_at(one, place) for one in given)
