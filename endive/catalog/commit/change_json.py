"""A change of a table as JSON, so that another process can commit it.

Requirements and updates are Iceberg's JSON of the REST protocol. Two of the catalog's own types are marked by a field
that Iceberg does not have: `AssertUnmoved` and `RemovePropertiesIfPresent`. Beside them are the file changes of added
snapshots, as in rows of `__files`, and the manifests that each of them brings: another process needs no request to
put an append on top of a newer snapshot.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from pyiceberg.table.update import TableRequirement, TableUpdate

from endive.catalog.commit.change import RemovePropertiesIfPresent, TableChange
from endive.catalog.commit.decision import AssertUnmoved
from endive.catalog.model.file_rows import FilesOfSnapshot, decoded_file, encoded_file

_updates: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])
_requirements: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])
UNMOVED, IF_PRESENT = "endive-unmoved", "endive-if-present"
_NO_TABLE = UUID(int=0)
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PortableChange:
    """A change, and what a process needs to commit it in place of the one that made it."""

    change: TableChange
    commit_id: str
    metadata_mode: str
    """When the owner's catalog writes metadata files, for tables that do not say it (`endive.metadata-json`)."""
    own_lists: Mapping[str, bytes] = field(default_factory=dict)
    """Manifest lists with only the manifests that an added snapshot brings, by the location of its whole list."""


def encoded_change(one: PortableChange) -> bytes:
    """Return the JSON of a change."""
    change = one.change
    fields: Json = {
        "identifier": change.identifier,
        "requirements": [_marked(each, AssertUnmoved, UNMOVED) for each in change.requirements],
        "updates": [_marked(each, RemovePropertiesIfPresent, IF_PRESENT) for each in change.updates],
        "files": {str(snapshot_id): _files_json(snapshot_id, files) for snapshot_id, files in change.files.items()},
        "own_lists": {location: b64encode(body).decode() for location, body in one.own_lists.items()},
        "commit_id": one.commit_id,
        "metadata_mode": one.metadata_mode,
        **({"digest": change.digest} if change.digest else {}),
    }
    return to_json(fields)


def decoded_change(body: bytes) -> PortableChange:
    """Return the change of a JSON. Raises whatever the bytes lead to: the change cannot be committed then."""
    fields = from_json(body)
    requirements = _requirements.validate_python(tuple(map(_unmarked, fields["requirements"])))
    updates = _updates.validate_python(tuple(map(_unmarked, fields["updates"])))
    change = TableChange(
        tuple(map(str, fields["identifier"])),
        tuple(
            AssertUnmoved(**dict(model)) if UNMOVED in sent else model
            for sent, model in zip(fields["requirements"], requirements, strict=True)
        ),
        tuple(
            RemovePropertiesIfPresent(**dict(model)) if IF_PRESENT in sent else model
            for sent, model in zip(fields["updates"], updates, strict=True)
        ),
        {int(snapshot_id): _decoded_files(files) for snapshot_id, files in fields["files"].items()},
        str(fields.get("digest", "")),
    )
    lists = {location: b64decode(encoded) for location, encoded in fields["own_lists"].items()}
    return PortableChange(change, str(fields["commit_id"]), str(fields["metadata_mode"]), lists)


def _marked(model: TableRequirement | TableUpdate, own: type, mark: str) -> Json:
    plain: Json = model.model_dump(mode="json", by_alias=True)
    return {**plain, mark: True} if isinstance(model, own) else plain


def _unmarked(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if name not in (UNMOVED, IF_PRESENT)}


def _files_json(snapshot_id: int, files: FilesOfSnapshot) -> Json:
    return {
        "kind": files.kind,
        "entries": [encoded_file(_NO_TABLE, snapshot_id, entry).decode() for entry in files.entries],
    }


def _decoded_files(fields: Json) -> FilesOfSnapshot:
    return FilesOfSnapshot(fields["kind"], tuple(decoded_file(text.encode()) for text in fields["entries"]))
