"""Manifest lists on top of others, without decoding what they have in common.

An append's manifest list has all manifests of its parent, and one more. Decoding and encoding a thousand manifests for
each append would make it cost as much as the table is old. An Avro file is a header and blocks of records, so the
blocks of the parent's list are copied as they are stored, behind a block of the new manifests.

**Blocks** of one manifest would be many, and compress badly: as soon as `BLOCKS_MAX` small blocks have gathered at the
front, they are joined to one.

**Which manifests.** An append leaves out manifests that only list deleted files. Those are in the list of the snapshot
that deleted the files, and no later one. So the blocks of a parent are copied if it is an append itself, and if its
list has the same Avro schema and codec; otherwise the parent's list is decoded.
"""

from collections import OrderedDict
from dataclasses import dataclass
from io import BytesIO
from threading import Lock

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.table.snapshots import Operation, Snapshot

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
BLOCKS_MAX = 64
"""Small blocks at the front of a list, before they are joined."""
SMALL_BLOCK = 64
"""A block of fewer manifests is small."""
KEPT_MAX = 256
"""Lists whose own manifests are remembered, from writing a list to committing it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of an Avro file."""

    count: int
    """Number of records."""
    content: bytes
    """Compressed, as it is stored."""


@dataclass(frozen=True, slots=True)
class AvroBlocks:
    """An Avro file in blocks."""

    header: bytes
    """With the sync marker."""
    properties: dict[bytes, bytes]
    blocks: list[Block]

    @property
    def kind(self) -> tuple[bytes | None, bytes | None]:
        """Schema and codec: blocks of files with the same can be exchanged."""
        return self.properties.get(b"avro.schema"), self.properties.get(b"avro.codec")

    def encoded(self) -> bytes:
        """Return the file. Empty blocks are left out: a reader may take one for the end."""
        sync = self.header[-SYNC_BYTES:]
        parts = [self.header]
        for one in self.blocks:
            if one.count:
                parts += (_long(one.count), _long(len(one.content)), one.content, sync)
        return b"".join(parts)


def avro_blocks(body: bytes) -> AvroBlocks:
    """Return the blocks of an Avro file; `ValueError` if it is none."""
    if not body.startswith(MAGIC):
        raise ValueError("not an Avro file")
    place, properties = len(MAGIC), {}
    while True:
        count, place = _read_long(body, place)
        if count == 0:
            break
        if count < 0:  # then the size of the block follows
            count, (_, place) = -count, _read_long(body, place)
        for _ in range(count):
            name, place = _read_bytes(body, place)
            properties[name], place = _read_bytes(body, place)
    place += SYNC_BYTES
    header, blocks = body[:place], []
    while place < len(body):
        count, place = _read_long(body, place)
        content, place = _read_bytes(body, place)
        if body[place : place + SYNC_BYTES] != header[-SYNC_BYTES:]:
            raise ValueError("a block of the Avro file does not end with its sync marker")
        place += SYNC_BYTES
        blocks.append(Block(count, content))
    return AvroBlocks(header, properties, blocks)


def on_top(own: bytes, parent: bytes) -> bytes | None:
    """Return a list with its own manifests and all of its parent's; None if the two files are of different kinds."""
    above, below = avro_blocks(own), avro_blocks(parent)
    if above.kind != below.kind:
        return None
    codec = (above.kind[1] or b"null").decode()
    return AvroBlocks(above.header, above.properties, _joined([*above.blocks, *below.blocks], codec)).encoded()


def keeps_all_manifests(parent: Snapshot) -> bool:
    """Whether an append keeps all manifests of this parent's list."""
    return parent.summary is not None and parent.summary.operation == Operation.APPEND


def _joined(blocks: list[Block], codec_name: str) -> list[Block]:
    """Join the small blocks at the front, if there are many."""
    small = next((place for place, one in enumerate(blocks) if one.count >= SMALL_BLOCK), len(blocks))
    if small < BLOCKS_MAX or codec_name not in KNOWN_CODECS:
        return blocks
    codec = KNOWN_CODECS[codec_name]
    plain = b"".join(one.content if codec is None else codec.decompress(one.content) for one in blocks[:small])
    content = plain if codec is None else bytes(codec.compress(plain)[0])
    return [Block(sum(one.count for one in blocks[:small]), content), *blocks[small:]]


def _long(number: int) -> bytes:
    """Return Avro's encoding of a number."""
    rest, encoded = (number << 1) ^ (number >> 63), bytearray()
    while rest & ~0x7F:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _read_long(body: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(body):
            raise ValueError("the Avro file is cut off")
        byte = body[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), place


def _read_bytes(body: bytes, place: int) -> tuple[bytes, int]:
    size, place = _read_long(body, place)
    if size < 0 or place + size > len(body):
        raise ValueError("the Avro file is cut off")
    return body[place : place + size], place + size


class OwnManifests:
    """Lists with only a snapshot's own manifests, by the location of its whole list; the newest ones.

    The commit of a snapshot needs its own manifests: what this process has just written need not be read again.
    """

    def __init__(self) -> None:
        self._lists: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def add(self, location: str, body: bytes) -> None:
        """Take note of a list that is being written at a location."""
        with self._lock:
            self._lists[location] = body
            if len(self._lists) > KEPT_MAX:
                self._lists.popitem(last=False)

    def get(self, location: str) -> bytes | None:
        """Return the list of a snapshot's own manifests; None if it is not known."""
        return self._lists.get(location)


own_manifests_of = OwnManifests()


class BytesFile(InputFile, OutputFile):
    """A file in memory, for PyIceberg's readers and writers."""

    def __init__(self, location: str, body: bytes = b"") -> None:
        super().__init__(location)
        self.body = body

    def __len__(self) -> int:
        return len(self.body)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - bytes in memory are always seekable
        return BytesIO(self.body)

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 - it is nobody else's
        return _Stream(self)

    def complete(self) -> None:
        """Do what is to be done when the file has been written: nothing here."""


class ListOnTop(BytesFile):
    """A manifest list that gets a snapshot's own manifests, and is completed by its parent's when it is closed."""

    def __init__(self, target: OutputFile, parent: bytes | None) -> None:
        super().__init__(target.location)
        self._target = target
        self._parent = parent

    def complete(self) -> None:
        whole: bytes | None = self.body
        if self._parent is not None:
            own_manifests_of.add(self.location, self.body)
            whole = on_top(self.body, self._parent)
        if whole is None:
            raise ValueError(f"{self.location}: its parent's list is of another kind")
        with self._target.create(overwrite=True) as stream:
            stream.write(whole)


class _Stream(BytesIO):
    def __init__(self, file: BytesFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.body = self.getvalue()
            self._file.complete()
        super().close()
