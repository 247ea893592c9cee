"""The JSON of a table's metadata, with the JSON of its snapshots and schemas encoded once.

A table of 2,000 snapshots takes PyIceberg's models a third of a second to encode. Snapshots and schemas never change,
and the catalog keeps the same objects from load to load, so their JSON is kept beside them and copied into the answer.
"""

from typing import Any

import msgspec
from pydantic import BaseModel
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1

from endive.catalog.model.encoding import ByIdentity

SNAPSHOTS_CACHED = 16_384
"""About half a kilobyte each."""
SCHEMAS_CACHED = 512

ENCODED_HERE = {"snapshots", "snapshot_log", "schemas", "metadata_log"}


def _raw(model: BaseModel) -> msgspec.Raw:
    return msgspec.Raw(BaseModel.model_dump_json(model, exclude_none=True, by_alias=True).encode())


_snapshot_json: ByIdentity[BaseModel, msgspec.Raw] = ByIdentity(SNAPSHOTS_CACHED, _raw)
_schema_json: ByIdentity[BaseModel, msgspec.Raw] = ByIdentity(SCHEMAS_CACHED, _raw)


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
