"""Iceberg's updates applied to a table's metadata, without copying the whole table.

PyIceberg's own `update_table_metadata` ends with a deep copy of everything, which takes longer than all the rest of a
commit. Its single updates build a new object where they change something and share the rest. The copy is not needed:
records are shared between threads, and nothing in them is changed in place.
"""

from collections.abc import Sequence

from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from endive.catalog.commit.change import PROPERTY_UPDATES, RemovePropertiesIfPresent, TableChange
from endive.catalog.commit.renumbering import renumbered
from endive.catalog.iceberg import empty_table_metadata, with_log_entry, with_updates
from endive.catalog.model.names import text_of
from endive.errors import CommitConflictError, ConfigurationError

STRUCTURE_FIELDS = (
    "schemas",
    "current_schema_id",
    "partition_specs",
    "default_spec_id",
    "sort_orders",
    "default_sort_order_id",
)
"""Fields that must fit together; an update that touches none of them shares them all."""

STRUCTURE_UPDATES = (
    AssignUUIDUpdate,
    UpgradeFormatVersionUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    AddPartitionSpecUpdate,
    SetDefaultSpecUpdate,
    AddSortOrderUpdate,
    SetDefaultSortOrderUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
)


def applied(change: TableChange, base: TableMetadata | None, previous: str, now_ms: int) -> TableMetadata:
    """Return the metadata after a change; `base` itself if the change has no effect.

    `previous`: the metadata file that goes into the metadata log; empty: none.
    """
    if base is None:
        return _at(_created(change), None, now_ms)
    now_ms = max(now_ms, base.last_updated_ms + 1)  # time does not go backwards in a table
    try:
        new = updated(base, change.updates, previous, now_ms)
    except KeyError as error:
        problem = f"property {error.args[0]!r} was already removed by a concurrent commit"
        raise CommitConflictError(text_of(change.identifier), problem) from error
    except ValueError as error:
        raise ConfigurationError(text_of(change.identifier), [str(error)]) from error
    return _at(new, base, now_ms)


def _created(change: TableChange) -> TableMetadata:
    """Return the metadata of a table that a change creates."""
    try:
        new = with_updates(empty_table_metadata(), change.updates)
        new.spec().check_compatible(new.schema())
        new.sort_order().check_compatible(new.schema())
        return TableMetadataUtil.parse_obj(new.model_dump())
    except (ValueError, StopIteration, LookupError, TypeError, IcebergValidationError) as error:
        problem = str(error) or "its current schema or partition spec is missing"
        raise ConfigurationError(text_of(change.identifier), [problem]) from error


def updated(base: TableMetadata, updates: Sequence[TableUpdate], previous: str, now_ms: int) -> TableMetadata:
    """Return the metadata after updates; `base` itself if they change nothing. Updates without a time get `now_ms`."""
    only_properties = PROPERTY_UPDATES.issuperset(map(type, updates))
    new = _with_properties(base, updates, now_ms) if only_properties else _with_all(base, updates, now_ms)
    return with_log_entry(new, previous, base.last_updated_ms) if previous and new is not base else new


def _with_all(base: TableMetadata, updates: Sequence[TableUpdate], now_ms: int) -> TableMetadata:
    new = with_updates(base, renumbered(base, updates))
    if new is base:
        return base
    if base.last_updated_ms == new.last_updated_ms:
        new = new.model_copy(update={"last_updated_ms": now_ms})
    if any(getattr(new, name) is not getattr(base, name) for name in STRUCTURE_FIELDS):
        new.spec().check_compatible(new.schema())
        new.sort_order().check_compatible(new.schema())
    return new


def _with_properties(base: TableMetadata, updates: Sequence[TableUpdate], now_ms: int) -> TableMetadata:
    """Return the metadata with other properties by one copy: the most frequent change."""
    properties = dict(base.properties)
    has_changes = False
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            properties.update(update.updates)
            has_changes = has_changes or bool(update.updates)
        elif isinstance(update, RemovePropertiesUpdate):
            for name in update.removals:
                if name not in properties and isinstance(update, RemovePropertiesIfPresent):
                    continue
                del properties[name]
                has_changes = True
    return base.model_copy(update={"properties": properties, "last_updated_ms": now_ms}) if has_changes else base


def structure_after(change: TableChange, base: TableMetadata | None) -> TableMetadata:
    """Return the metadata with a change's schemas, specs and properties, but without its snapshots."""
    updates = tuple(update for update in change.updates if isinstance(update, STRUCTURE_UPDATES))
    if base is None:
        return with_updates(empty_table_metadata(), updates)
    return with_updates(base, renumbered(base, updates)) if updates else base


def _at(new: TableMetadata, base: TableMetadata | None, now_ms: int) -> TableMetadata:
    """Return the metadata with the given time in place of the time of this call.

    A transaction function may depend on nothing but what it reads and its arguments.
    """
    if new is base or new.last_updated_ms == now_ms:
        return new
    if any(new.last_updated_ms == one.timestamp_ms for one in new.snapshots):
        return new
    log_length = len(base.snapshot_log) if base is not None else 0
    log = [
        entry.model_copy(update={"timestamp_ms": now_ms})
        if number >= log_length and entry.timestamp_ms == new.last_updated_ms
        else entry
        for number, entry in enumerate(new.snapshot_log)
    ]
    return new.model_copy(update={"last_updated_ms": now_ms, "snapshot_log": log})
