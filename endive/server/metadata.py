"""The JSON of a table's metadata in an answer: pieces that the catalog keeps, joined once with the rest of the answer.

A table of 2,000 snapshots takes PyIceberg's models a third of a second to encode. The catalog keeps the JSON of
snapshots, schemas and history for metadata files (`endive.catalog.model.metadata_json`); an answer has the same bytes.
"""

from pydantic import BaseModel
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1

from endive.catalog.model.metadata_json import metadata_pieces
from endive.server.http import Spliced


def metadata_json(metadata: TableMetadata, mode: str = "all") -> Spliced:
    """Return the JSON of a table's metadata. `mode`: `refs` leaves out snapshots without a branch or tag."""
    if mode == "refs":
        named = {ref.snapshot_id for ref in metadata.refs.values()}
        chosen = [one for one in metadata.snapshots if one.snapshot_id in named]
        metadata = metadata.model_copy(update={"snapshots": chosen})
    if isinstance(metadata, TableMetadataV1):  # its snapshots are written without their sequence numbers
        return Spliced([BaseModel.model_dump_json(metadata, exclude_none=True, by_alias=True).encode()])
    return Spliced(metadata_pieces(metadata))
