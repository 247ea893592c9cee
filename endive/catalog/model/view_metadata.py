"""Updates of a view's metadata, as Iceberg's library applies them: pure functions on JSON.

Schemas and versions that a view already has are found again and not added twice; ids that are taken are replaced by the
next ones; `-1` means the last one that was added. A view keeps its last `version.history.num-entries` versions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from endive.catalog.model.names import text_of
from endive.catalog.model.view_records import Json
from endive.errors import CommitConflictError, ConfigurationError

FORMAT_VERSION = 1
LAST_ADDED = -1
HISTORY_SIZE = "version.history.num-entries"
HISTORY_SIZE_DEFAULT = 10
DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"


class ViewBuilder:
    """The metadata of a view in the course of a change."""

    def __init__(self, name: str, base: Json | None, now_ms: int) -> None:
        self._name = name
        self._base = base
        self._now_ms = now_ms
        self._last_schema: int | None = None
        self._last_version: int | None = None
        self._added_versions: set[int] = set()
        self._entry: Json | None = None
        empty: Json = {"format-version": FORMAT_VERSION, "current-version-id": None, "properties": {}}
        self.metadata: Json = dict(base) if base is not None else empty
        for name_of_list in ("schemas", "versions", "version-log"):
            self.metadata[name_of_list] = list(self.metadata.get(name_of_list, ()))

    def apply(self, update: Json) -> None:
        """Apply one of Iceberg's updates."""
        actions: Mapping[str, Callable[[Json], None]] = {
            "assign-uuid": self._assign_uuid,
            "upgrade-format-version": self._upgrade,
            "set-location": lambda one: self._set("location", one["location"]),
            "set-properties": self._set_properties,
            "remove-properties": self._remove_properties,
            "add-schema": lambda one: self._add_schema(one["schema"]),
            "add-view-version": lambda one: self._add_version(one["view-version"]),
            "set-current-view-version": lambda one: self._set_current(one["view-version-id"]),
        }
        action = actions.get(str(update.get("action")))
        if action is None:
            raise self._error(f"unknown update of a view: {update.get('action')!r}")
        try:
            action(update)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._error(f"update {update['action']!r} is malformed: {error}") from error

    def _error(self, problem: str) -> ConfigurationError:
        return ConfigurationError(self._name, [problem])

    def _set(self, name: str, value: Any) -> None:  # noqa: ANN401 - JSON
        self.metadata[name] = value

    def _assign_uuid(self, update: Json) -> None:
        if self._base is not None and update["uuid"] != self._base["view-uuid"]:
            raise self._error("Cannot reassign uuid")
        self._set("view-uuid", update["uuid"])

    def _upgrade(self, update: Json) -> None:
        if update["format-version"] != FORMAT_VERSION:
            raise self._error(f"Unsupported format version: {update['format-version']}")

    def _set_properties(self, update: Json) -> None:
        self._set("properties", {**self.metadata.get("properties", {}), **update["updates"]})

    def _remove_properties(self, update: Json) -> None:
        kept = self.metadata.get("properties", {})
        self._set("properties", {name: value for name, value in kept.items() if name not in update["removals"]})

    def _add_schema(self, schema: Json) -> None:
        for known in self.metadata["schemas"]:
            if _same_schema(known, schema):
                self._last_schema = known["schema-id"]
                return
        number = max((known["schema-id"] for known in self.metadata["schemas"]), default=-1) + 1
        self.metadata["schemas"].append({**schema, "schema-id": number})
        self._last_schema = number

    def _add_version(self, version: Json) -> None:
        if version["schema-id"] == LAST_ADDED:
            if self._last_schema is None:
                raise self._error("Cannot set last added schema: no schema has been added")
            version = {**version, "schema-id": self._last_schema}
        if all(version["schema-id"] != one["schema-id"] for one in self.metadata["schemas"]):
            raise self._error(f"Cannot add version with unknown schema: {version['schema-id']}")
        self._check_dialects(version)
        for known in self.metadata["versions"]:
            if _same_version(known, version):
                self._last_version = known["version-id"]
                return
        number = max([version["version-id"], *(one["version-id"] + 1 for one in self.metadata["versions"])])
        self.metadata["versions"].append({**version, "version-id": number})
        self._added_versions.add(number)
        self._last_version = number

    def _check_dialects(self, version: Json) -> None:
        seen: set[str] = set()
        for one in version["representations"]:
            if one.get("type") != "sql":
                raise self._error(f"Found unsupported view representations: {one.get('type')}")
            dialect = one["dialect"].lower()
            if dialect in seen:
                raise self._error(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
            seen.add(dialect)
        if not seen:
            raise self._error("Cannot create view without specifying a query")

    def _set_current(self, number: int) -> None:
        if number == LAST_ADDED:
            if self._last_version is None:
                raise self._error("Cannot set last version id: no current version id has been set")
            number = self._last_version
        if number == self.metadata["current-version-id"]:
            return
        version = next((one for one in self.metadata["versions"] if one["version-id"] == number), None)
        if version is None:
            raise self._error(f"Cannot set current version to unknown version: {number}")
        at_ms = version["timestamp-ms"] if number in self._added_versions else self._now_ms
        self._entry = {"timestamp-ms": at_ms, "version-id": number}
        self._set("current-version-id", number)

    def built(self) -> Json:
        """Return the metadata after the change; `base` itself if nothing has changed."""
        if self._entry is not None:
            self.metadata["version-log"].append(self._entry)
        if self._base is not None and self.metadata == self._base:
            return self._base
        if not self.metadata["versions"] or self.metadata["current-version-id"] is None:
            raise self._error("Invalid view: no versions were added")
        if not self.metadata.get("location") or not self.metadata.get("view-uuid"):
            raise self._error("Invalid view: it has no location or no uuid")
        self._check_dropped_dialects()
        self._expire()
        return self.metadata

    def _check_dropped_dialects(self) -> None:
        allowed = self.metadata.get("properties", {}).get(DROP_DIALECT_ALLOWED, "false").lower() == "true"
        if self._base is None or allowed:
            return
        before, after = _dialects(self._base), _dialects(self.metadata)
        if not before <= after:
            raise self._error(
                f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false): previous dialects "
                f"{sorted(before)}, new dialects {sorted(after)}"
            )

    def _expire(self) -> None:
        """Remove the oldest versions, and the log before a version that is gone."""
        text = str(self.metadata.get("properties", {}).get(HISTORY_SIZE, HISTORY_SIZE_DEFAULT))
        if not text.isdigit() or int(text) < 1:
            raise self._error(f"{HISTORY_SIZE} must be positive but was {text}")
        current = self.metadata["current-version-id"]
        kept_max = max(int(text), len(self._added_versions | {current}))
        versions = self.metadata["versions"]
        if len(versions) <= kept_max:
            return
        newest = sorted((one["version-id"] for one in versions if one["version-id"] != current), reverse=True)
        kept = {current, *newest[: kept_max - 1]}
        self.metadata["versions"] = [one for one in versions if one["version-id"] in kept]
        log: list[Json] = []
        for entry in self.metadata["version-log"]:
            log = [*log, entry] if entry["version-id"] in kept else []
        self.metadata["version-log"] = log


def updated_view(name: tuple[str, ...], base: Json | None, updates: Sequence[Json], now_ms: int) -> Json:
    """Return a view's metadata after updates; `base` itself if they change nothing, None: the view is created."""
    builder = ViewBuilder(text_of(name), base, now_ms)
    for update in updates:
        builder.apply(update)
    return builder.built()


def check_view_requirements(name: tuple[str, ...], base: Json, requirements: Sequence[Json]) -> None:
    """Raise `CommitConflictError` if a requirement does not hold."""
    for one in requirements:
        if one.get("type") != "assert-view-uuid":
            raise ConfigurationError(text_of(name), [f"unknown requirement of a view: {one.get('type')!r}"])
        if str(one.get("uuid")).lower() != str(base["view-uuid"]).lower():
            problem = f"Requirement failed: view UUID does not match: expected {one.get('uuid')}"
            raise CommitConflictError(text_of(name), f"{problem}, found {base['view-uuid']}")


def _same_schema(one: Json, other: Json) -> bool:
    ignored = {"schema-id"}
    left = {key: value for key, value in one.items() if key not in ignored and value}
    return left == {key: value for key, value in other.items() if key not in ignored and value}


def _same_version(one: Json, other: Json) -> bool:
    names = ("summary", "representations", "default-catalog", "default-namespace", "schema-id")
    return all(one.get(name) == other.get(name) for name in names)


def _dialects(metadata: Json) -> set[str]:
    current = next(one for one in metadata["versions"] if one["version-id"] == metadata["current-version-id"])
    return {one["dialect"].lower() for one in current["representations"] if one.get("type") == "sql"}
