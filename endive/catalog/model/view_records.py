"""The record of a view: Iceberg's view metadata as it is, and what commits need.

View metadata is small and has no rows of its own: one record holds all of it, with its versions and its log.
"""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from endive.catalog.model.encoding import decodes
from endive.catalog.model.names import Identifier

COMMITS_STORED = 20
"""Commit ids in a view's record: a retry of one of the last changes is recognised."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """A view."""

    identifier: Identifier
    version: int
    """Grows by one with every change; commits compare it."""
    metadata: Json
    """Iceberg's view metadata, under Iceberg's names. It is shared: do not change it."""
    metadata_location: str
    """The metadata file of this version."""
    commit_ids: tuple[str, ...] = ()
    """Ids of the last commits, newest last."""

    @property
    def uuid(self) -> str:
        """The view's uuid, which a rename does not change."""
        return str(self.metadata["view-uuid"])

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {
                "namespace": self.identifier[:-1],
                "view_name": self.identifier[-1],
                "version": self.version,
                "metadata_location": self.metadata_location,
                "commit_ids": self.commit_ids,
                "metadata": self.metadata,
            }
        )

    @staticmethod
    @decodes("a view's record")
    def decoded(body: bytes) -> "ViewRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return ViewRecord(
            (*fields["namespace"], fields["view_name"]),
            fields["version"],
            fields["metadata"],
            fields["metadata_location"],
            tuple(fields["commit_ids"]),
        )
