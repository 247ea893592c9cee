"""Manifest lists as raw Avro records: lists that repeat the list before them are not decoded again.

The list of an append is the list of its parent with new manifests in front, so that the lists of n snapshots have n²/2
entries. Decoding them all takes minutes for a table of some thousand snapshots. Here a list is read and decompressed,
and if its records end with the records of the parent's list, byte for byte, only those before them are decoded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.typedef import StructProtocol

from endive.catalog.commit.manifests import reading

SYNC_BYTES = 16
SCHEMA = "avro.schema"


@dataclass(frozen=True, slots=True)
class RawList:
    """A manifest list whose records are not decoded."""

    path: str
    header: AvroFileHeader
    records: bytes
    count: int

    def manifests(self) -> tuple[ManifestFile, ...]:
        """Decode all records."""
        return self._decoded(self.records, self.count)

    def added_to(self, parent: "RawList") -> tuple[ManifestFile, ...] | None:
        """Return the manifests in front of those of another list; None if it does not end with the other's records."""
        count, size = self.count - parent.count, len(self.records) - len(parent.records)
        if count < 0 or self.header.meta[SCHEMA] != parent.header.meta[SCHEMA]:
            return None
        if not self.records.endswith(parent.records):
            return None
        return self._decoded(self.records[:size], count)

    def _decoded(self, records: bytes, count: int) -> tuple[ManifestFile, ...]:
        with reading(self.path):
            reader, decoder = _reader(self.header.meta[SCHEMA]), new_decoder(records)
            found = tuple(reader.read(decoder) for _ in range(count))
            if decoder.tell() != len(records):
                raise ValueError(f"{len(records) - decoder.tell()} bytes behind its last record")
            return found


@lru_cache(maxsize=16)
def _reader(schema: str) -> Reader:
    """Return the reader of lists with an Avro schema. Making one takes longer than reading a short list."""
    written = AvroFileHeader(b"", {SCHEMA: schema}, b"").get_schema()
    types: dict[int, Callable[..., StructProtocol]] = {-1: ManifestFile, 508: PartitionFieldSummary}
    return resolve_reader(written, MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION], types, {517: ManifestContent})


def read_raw(io: FileIO, path: str) -> RawList:
    """Read and decompress a manifest list."""
    with reading(path):
        with io.new_input(path).open() as stream:
            body = stream.read()
        decoder = new_decoder(body)
        header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
        codec, blocks, count = header.compression_codec(), [], 0
        while decoder.tell() < len(body):
            count += decoder.read_int()
            block = decoder.read_bytes()
            blocks.append(codec.decompress(block) if codec is not None else block)
            if decoder.read(SYNC_BYTES) != header.sync:
                raise ValueError("a block does not end with the marker of the file")
        return RawList(path, header, b"".join(blocks), count)


ManifestKey = tuple[str, int]
"""A manifest as a list refers to it: its path, and the sequence number that its entries inherit."""


def key_of(manifest: ManifestFile) -> ManifestKey:
    """Return what identifies a manifest in a list."""
    return manifest.manifest_path, manifest.sequence_number or 0


@dataclass(frozen=True, slots=True)
class ListChange:
    """The manifests of a snapshot, as a difference to those of its parent."""

    added: Sequence[ManifestFile]
    removed: Sequence[ManifestKey] = ()
    is_whole: bool = False
    """Whether the parent's are not known, and `added` has all manifests."""


@dataclass
class ListState:
    """The manifests of one snapshot, followed from parent to child."""

    raw: RawList
    manifests: dict[ManifestKey, ManifestFile]

    def copy(self) -> "ListState":
        """Return a copy that can be advanced by itself."""
        return ListState(self.raw, dict(self.manifests))


def advance(state: ListState | None, raw: RawList) -> tuple[ListState, ListChange]:
    """Return the state of a child and the difference; `state` of the parent is changed. None: without a parent."""
    if state is None:
        found = {key_of(one): one for one in raw.manifests()}
        return ListState(raw, found), ListChange(tuple(found.values()), is_whole=True)
    added = raw.added_to(state.raw)
    state.raw = raw
    if added is not None:
        state.manifests.update((key_of(one), one) for one in added)
        return state, ListChange(added)
    before, state.manifests = state.manifests, {key_of(one): one for one in raw.manifests()}
    new = tuple(one for key, one in state.manifests.items() if key not in before)
    return state, ListChange(new, tuple(key for key in before if key not in state.manifests))
