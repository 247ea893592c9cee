"""Ids of schemas, partition specs and sort orders in a change, assigned as Iceberg's library assigns them.

A client numbers what it adds by the state that it knows. Another commit may have taken the number, or added the same
thing. So the numbers of a change are only names inside it: a structure that the table already has is found again, a new
one gets the next number, and `-1` means the last one added. Removals of statistics and snapshots that are already gone
have no effect.
"""

from collections.abc import Iterable, Sequence

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from endive.catalog.commit.change import RemovePropertiesIfPresent

LAST_ADDED = -1

RENUMBERED = (
    AddSchemaUpdate,
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetDefaultSortOrderUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesIfPresent,
)
"""Updates that may have to be changed or left out."""


def renumbered(base: TableMetadata, updates: Sequence[TableUpdate]) -> Sequence[TableUpdate]:
    """Return updates with the ids that they have on `base`; the same object if no update has any."""
    if not any(isinstance(update, RENUMBERED) for update in updates):
        return updates
    numbering = _Numbering(base)
    changed = [numbering.of(update) for update in updates]
    return tuple(update for update in changed if update is not None)


class _Numbering:
    """Structures of a table in the course of a change."""

    def __init__(self, base: TableMetadata) -> None:
        self._base = base
        self._schemas = list(base.schemas)
        self._specs = list(base.partition_specs)
        self._orders = list(base.sort_orders)
        self._properties = set(base.properties)
        self._given: dict[tuple[str, int], int] = {}
        """Ids of structures, by their kind and by the id that the client gave them; -1 for the last one."""

    def of(self, update: TableUpdate) -> TableUpdate | None:  # noqa: PLR0911 - one line for each kind
        """Return an update with the right ids; None if it has no effect."""
        match update:
            case AddSchemaUpdate():
                return self._schema(update.schema_)
            case AddPartitionSpecUpdate():
                return self._spec(update.spec)
            case AddSortOrderUpdate():
                return self._order(update.sort_order)
            case SetCurrentSchemaUpdate():
                return SetCurrentSchemaUpdate(schema_id=self._number("schema", update.schema_id))
            case SetDefaultSpecUpdate():
                return SetDefaultSpecUpdate(spec_id=self._number("partition spec", update.spec_id))
            case SetDefaultSortOrderUpdate():
                return SetDefaultSortOrderUpdate(sort_order_id=self._number("sort order", update.sort_order_id))
            case SetPropertiesUpdate():
                self._properties |= update.updates.keys()
                return update
            case RemovePropertiesIfPresent():
                left = [name for name in update.removals if name in self._properties]
                self._properties -= set(left)
                return RemovePropertiesUpdate(removals=left)
            case RemoveSnapshotsUpdate():
                known = {one.snapshot_id for one in self._base.snapshots}
                ids = [one for one in update.snapshot_ids if one in known]
                return RemoveSnapshotsUpdate(snapshot_ids=ids) if ids else None
            case RemoveStatisticsUpdate():
                return update if any(one.snapshot_id == update.snapshot_id for one in self._base.statistics) else None
            case RemovePartitionStatisticsUpdate():
                files = self._base.partition_statistics
                return update if any(one.snapshot_id == update.snapshot_id for one in files) else None
            case _:
                return update

    def _number(self, kind: str, given: int) -> int:
        if given == LAST_ADDED and (kind, given) not in self._given:
            raise ValueError(f"Cannot set last added {kind}: no {kind} has been added")
        return self._given.get((kind, given), given)

    def _assign(self, kind: str, given: int, number: int) -> int:
        self._given[kind, given] = self._given[kind, LAST_ADDED] = number
        return number

    def _schema(self, schema: Schema) -> AddSchemaUpdate | None:
        for known in self._schemas:
            if known == schema:
                self._assign("schema", schema.schema_id, known.schema_id)
                return None
        number = self._assign("schema", schema.schema_id, _next(one.schema_id for one in self._schemas))
        new = schema if schema.schema_id == number else schema.model_copy(update={"schema_id": number})
        self._schemas.append(new)
        return AddSchemaUpdate(schema_=new)

    def _spec(self, spec: PartitionSpec) -> AddPartitionSpecUpdate | None:
        for known in self._specs:
            if known.compatible_with(spec):
                self._assign("partition spec", spec.spec_id, known.spec_id)
                return None
        number = self._assign("partition spec", spec.spec_id, _next(one.spec_id for one in self._specs))
        new = spec if spec.spec_id == number else PartitionSpec(*spec.fields, spec_id=number)
        self._specs.append(new)
        return AddPartitionSpecUpdate(spec=new)

    def _order(self, order: SortOrder) -> AddSortOrderUpdate | None:
        for known in self._orders:
            if known.fields == order.fields:
                self._assign("sort order", order.order_id, known.order_id)
                return None
        unused = _next((UNSORTED_SORT_ORDER_ID, *(one.order_id for one in self._orders)))
        number = self._assign("sort order", order.order_id, unused if order.fields else UNSORTED_SORT_ORDER_ID)
        new = order if order.order_id == number else SortOrder(*order.fields, order_id=number)
        self._orders.append(new)
        return AddSortOrderUpdate(sort_order=new)


def _next(ids: Iterable[int]) -> int:
    return max(ids, default=-1) + 1
