"""The JSON of a table's metadata, with the JSON of its snapshots and schemas encoded once.

A table of 2,000 snapshots takes PyIceberg's models a third of a second to encode. Snapshots and schemas never change,
and the catalog keeps the same objects from load to load, so their JSON is kept beside them and copied into the answer.
"""

from threading import Lock
from typing import Any

import msgspec
from pydantic import BaseModel
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1

SNAPSHOTS_CACHED = 16_384
"""About half a kilobyte each."""
SCHEMAS_CACHED = 512

ENCODED_HERE = {"snapshots", "snapshot_log", "schemas", "metadata_log"}


class RawJson:
    """JSON of immutable models by identity, the newest ones. Safe to use from many threads.

    A model is referenced here, so that no other one can have its id.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._held: dict[int, tuple[BaseModel, msgspec.Raw]] = {}
        self._lock = Lock()

    def __call__(self, model: BaseModel) -> msgspec.Raw:
        """Return the JSON of a model."""
        held = self._held.get(id(model))
        if held is None:
            held = model, msgspec.Raw(BaseModel.model_dump_json(model, exclude_none=True, by_alias=True).encode())
            with self._lock:
                self._held[id(model)] = held
                if len(self._held) > self._count_max:
                    del self._held[next(iter(self._held))]
        return held[1]


_snapshot_json = RawJson(SNAPSHOTS_CACHED)
_schema_json = RawJson(SCHEMAS_CACHED)


def metadata_json(metadata: TableMetadata, mode: str = "all") -> dict[str, Any]:
    """Return the JSON of a table's metadata. `mode`: `refs` leaves out snapshots without a branch or tag."""
    snapshots = metadata.snapshots
    if mode == "refs":
        named = {ref.snapshot_id for ref in metadata.refs.values()}
        snapshots = [one for one in snapshots if one.snapshot_id in named]
    if isinstance(metadata, TableMetadataV1):  # its snapshots are written without their sequence numbers
        chosen = metadata.model_copy(update={"snapshots": snapshots})
        return BaseModel.model_dump(chosen, mode="json", exclude_none=True, by_alias=True)
    body = BaseModel.model_dump(metadata, mode="json", exclude=ENCODED_HERE, exclude_none=True, by_alias=True)
    body["schemas"] = [_schema_json(one) for one in metadata.schemas]
    body["snapshots"] = [_snapshot_json(one) for one in snapshots]
    body["snapshot-log"] = [
        {"snapshot-id": one.snapshot_id, "timestamp-ms": one.timestamp_ms} for one in metadata.snapshot_log
    ]
    body["metadata-log"] = [
        {"metadata-file": one.metadata_file, "timestamp-ms": one.timestamp_ms} for one in metadata.metadata_log
    ]
    return body
