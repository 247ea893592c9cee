"""Iceberg's updates applied to a table's metadata, without copying the whole table.

PyIceberg's own `update_table_metadata` ends with a deep copy of everything, which takes longer than all the rest of a
commit. Its single updates build the metadata anew where they change it and share what they leave, so the copy protects
from nobody who keeps to that: records are shared between threads, and nothing in them is changed in place.
"""

from collections.abc import Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)

STRUCTURE = (
    "schemas",
    "current_schema_id",
    "partition_specs",
    "default_spec_id",
    "sort_orders",
    "default_sort_order_id",
)
"""What must fit together; an update that does not touch any of it shares it."""


def updated(base: TableMetadata, updates: Sequence[TableUpdate], previous: str, now_ms: int) -> TableMetadata:
    """Return the metadata after the updates; `base` itself if they change nothing.

    `previous`: the metadata file that goes into the log; empty: none. Updates that do not say when they happened have
    happened at `now_ms`.
    """
    if all(isinstance(update, (SetPropertiesUpdate, RemovePropertiesUpdate)) for update in updates):
        new = _with_properties(base, updates, now_ms)
    else:
        new = _with_all(base, updates, now_ms)
    return new if new is base or not previous else _update_table_metadata_log(new, previous, base.last_updated_ms)


def _with_properties(base: TableMetadata, updates: Sequence[TableUpdate], now_ms: int) -> TableMetadata:
    """Return the metadata with other properties, by one copy; the most frequent change, and the cheapest."""
    properties = dict(base.properties)
    has_changes = False
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            properties.update(update.updates)
            has_changes = has_changes or bool(update.updates)
        elif isinstance(update, RemovePropertiesUpdate):
            for name in update.removals:
                del properties[name]
                has_changes = True
    return base.model_copy(update={"properties": properties, "last_updated_ms": now_ms}) if has_changes else base


def _with_all(base: TableMetadata, updates: Sequence[TableUpdate], now_ms: int) -> TableMetadata:
    context = _TableMetadataUpdateContext()
    new = base
    for update in updates:
        new = _apply_table_update(update, new, context)
    if not context.has_changes():
        return base
    if base.last_updated_ms == new.last_updated_ms:
        new = new.model_copy(update={"last_updated_ms": now_ms})
    if any(getattr(new, name) is not getattr(base, name) for name in STRUCTURE):
        new.spec().check_compatible(new.schema())
        new.sort_order().check_compatible(new.schema())
    return new
