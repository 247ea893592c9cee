"""The change that a client asks for: Iceberg's requirements and updates for one table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from endive.catalog.model.file_rows import FilesOfSnapshot
from endive.catalog.model.names import Identifier


class RemovePropertiesIfPresent(RemovePropertiesUpdate):
    """Removes properties, as Iceberg's library does it: those that are already gone are no conflict."""


PROPERTY_UPDATES: frozenset[type[TableUpdate]] = frozenset(
    (SetPropertiesUpdate, RemovePropertiesUpdate, RemovePropertiesIfPresent)
)


@dataclass(frozen=True)
class TableChange:
    """A change of one table: Iceberg's requirements and updates."""

    identifier: Identifier
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    files: Mapping[int, FilesOfSnapshot] = field(default_factory=dict)
    """File changes of the added snapshots, by snapshot id; a snapshot without an entry gets no `__files` rows."""
    digest: str = ""
    """Digest of the client's request: its commit id then belongs to this request alone. Empty: not checked."""
    kinds: frozenset[type[TableUpdate]] = field(init=False, compare=False, repr=False)
    """The types of the updates."""
    required: frozenset[type[TableRequirement]] = field(init=False, compare=False, repr=False)
    """The types of the requirements."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", frozenset(map(type, self.updates)))
        object.__setattr__(self, "required", frozenset(map(type, self.requirements)))

    @property
    def creates(self) -> bool:
        """Whether the change creates the table."""
        return AssertCreate in self.required

    @property
    def has_files(self) -> bool:
        """Whether files belong to the change: those of a snapshot, or the first metadata file of a table."""
        return AddSnapshotUpdate in self.kinds or self.creates

    @property
    def added_snapshots(self) -> list[Snapshot]:
        """The snapshots that the change adds, in order."""
        if AddSnapshotUpdate not in self.kinds:
            return []
        return [update.snapshot for update in self.updates if isinstance(update, AddSnapshotUpdate)]

    @property
    def removed_snapshots(self) -> frozenset[int]:
        """The ids of the snapshots that the change removes."""
        if RemoveSnapshotsUpdate not in self.kinds:
            return frozenset()
        removals = [update for update in self.updates if isinstance(update, RemoveSnapshotsUpdate)]
        return frozenset(one for update in removals for one in update.snapshot_ids)

    def properties_after(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Return a table's properties after the change."""
        if not self.kinds & PROPERTY_UPDATES:
            return properties
        for update in self.updates:
            if isinstance(update, SetPropertiesUpdate):
                properties = {**properties, **update.updates}
            elif isinstance(update, RemovePropertiesUpdate):
                properties = {name: value for name, value in properties.items() if name not in update.removals}
        return properties
