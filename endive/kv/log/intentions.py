"""Intentions: calls that a writer wants to be carried out, as objects that every writer can read.

    manifest/intention-{position}-{id}
    manifest/intention-{position}-{id}-{topic}

`position` is the last WAL entry that its owner knew when it made the intention; the id is random, so no two intentions
share a name. An intention with a *topic* needs files before it can be carried out (`endive.kv.log.topics`); the topic
says what it is about, so that a listing shows which intentions belong together. They are beside the manifests because
every shared commit ends with a listing of newer manifests: the same request shows which intentions are pending.

An intention is *decided* in a WAL entry, together with its effects: a row with its result, under its name, in a
keyspace that is reserved for the store. The *horizon* is another such row. Results of intentions made before the
horizon have been forgotten, and such intentions are never carried out: they have *expired*.

    8 bytes  magic    ENDIVEIN
    2 bytes  format version
    4 bytes  CRC-32C of the rest
    rest     a line of JSON, then the arguments one after the other; compressed with zstd
"""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from google_crc32c import value as crc32c

from endive.errors import CorruptObjectError
from endive.kv.manifest_format import MANIFESTS
from endive.kv.procedures import Call
from endive.kv.sst.compression import compress, decompress
from endive.kv.sst.merge import KeyRange
from endive.kv.transaction import RESERVED
from endive.protocol.requests import ObjectInfo
from endive.protocol.sequenced import DIGITS

PREFIX = f"{MANIFESTS.prefix}intention-"
MAGIC = b"ENDIVEIN"
FORMAT_VERSION = 1
INTENTION_BYTES_MAX = 1 << 20
"""Arguments of one intention. Larger ones are committed by their own process, as functions are."""
_HEADER = struct.Struct(">8sHI")
_ID_DIGITS = 32
TOPIC_DIGITS = 16
_OUTCOMES = RESERVED + b"outcome/"
HORIZON = RESERVED + b"horizon"

DONE, REFUSED, FAILED = "done", "refused", "failed"


NEWER = Call("a newer format of intentions", 0, b"")
"""Stands for what this version cannot read: it is left to processes that can."""


@dataclass(frozen=True)
class Intention:
    """Calls of one writer, each carried out on its own, in order."""

    name: str
    calls: tuple[Call, ...]
    writer: str = ""
    """Names the process that made it, for people."""
    problem: str = ""
    """Why it cannot be carried out; empty: it can."""

    @property
    def path(self) -> str:
        """Where the object is."""
        return PREFIX + self.name

    @property
    def is_known(self) -> bool:
        """Whether this process has all its procedures."""
        return all(call.is_known for call in self.calls)

    @property
    def size_bytes(self) -> int:
        """Bytes of its arguments."""
        return sum(len(call.argument) for call in self.calls)


@dataclass(frozen=True)
class CallResult:
    """Result of one call: `done` or `refused` with the procedure's bytes, or `failed` with a message."""

    kind: str
    body: bytes


@dataclass(frozen=True)
class Decided:
    """The result of an intention, as it is recorded."""

    by: str
    """The writer that carried it out."""
    results: tuple[CallResult, ...]


# Names and keys.


def name_of(position: int, intention_id: str, topic: str = "") -> str:
    """Return the name of an intention; names sort by position."""
    name = f"{position:0{DIGITS}d}-{intention_id}"
    return f"{name}-{topic}" if topic else name


def topic_of(name: str) -> str:
    """Return the topic of an intention; empty: it needs no files, any writer can carry it out."""
    return name[DIGITS + 1 + _ID_DIGITS + 1 :]


def position_of(name: str) -> int:
    """Return the position at which an intention was made."""
    return int(name[:DIGITS])


def names_in(listing: Iterable[ObjectInfo]) -> tuple[str, ...]:
    """Return the names of the intentions in a listing, in order; other objects are left out."""
    names = (info.path.removeprefix(PREFIX) for info in listing if info.path.startswith(PREFIX))
    return tuple(name for name in names if is_name(name))


def is_name(name: str) -> bool:
    """Whether this is the name of an intention."""
    position, _, rest = name.partition("-")
    intention_id, *topics = rest.split("-", 1)
    return (
        name.isascii()
        and len(position) == DIGITS
        and position.isdigit()
        and len(intention_id) == _ID_DIGITS
        and intention_id.isalnum()
        and all(len(topic) == TOPIC_DIGITS and topic.isalnum() for topic in topics)
    )


def outcome_key(name: str) -> bytes:
    """Return the key of the row that says how an intention was decided."""
    return _OUTCOMES + name.encode()


def outcomes_before(position: int) -> KeyRange:
    """Return the keys of the results of intentions made before a position."""
    return KeyRange(_OUTCOMES, _OUTCOMES + f"{position:0{DIGITS}d}".encode())


def name_in(key: bytes) -> str:
    """Return the intention whose result is under a key."""
    return key.removeprefix(_OUTCOMES).decode()


# Bytes.


def encode_intention(intention: Intention) -> bytes:
    """Return the bytes of an intention."""
    calls = [[call.procedure, call.version, len(call.argument)] for call in intention.calls]
    head = json.dumps({"writer": intention.writer, "calls": calls}, separators=(",", ":")).encode()
    rest = compress(b"".join((head, b"\n", *(call.argument for call in intention.calls))))
    return _HEADER.pack(MAGIC, FORMAT_VERSION, crc32c(rest)) + rest


def decode_intention(name: str, body: bytes) -> Intention:
    """Return the intention in `body`; one that cannot be decoded has a `problem`."""
    if len(body) >= _HEADER.size and body.startswith(MAGIC):
        _, version, checksum = _HEADER.unpack_from(body)
        if version > FORMAT_VERSION:
            return Intention(name, (NEWER,))
        rest = body[_HEADER.size :]
        if crc32c(rest) == checksum:
            try:
                return _decoded(name, decompress(PREFIX + name, rest, 2 * INTENTION_BYTES_MAX))
            except (CorruptObjectError, ValueError, KeyError, TypeError) as error:
                return Intention(name, (), problem=f"the intention cannot be decoded: {error}")
    return Intention(name, (), problem="the intention cannot be decoded: damaged, cut short or foreign")


def _decoded(name: str, data: bytes) -> Intention:
    head, _, arguments = data.partition(b"\n")
    fields = json.loads(head)
    calls: list[Call] = []
    at = 0
    for procedure, version, length in fields["calls"]:
        calls.append(Call(str(procedure), int(version), arguments[at : at + length]))
        at += length
    if at != len(arguments) or not calls:
        raise ValueError("lengths do not add up")
    return Intention(name, tuple(calls), str(fields["writer"]))


def encode_decided(decided: Decided) -> bytes:
    """Return the value of a result's row."""
    results = [[result.kind, len(result.body)] for result in decided.results]
    head = json.dumps({"by": decided.by, "results": results}, separators=(",", ":")).encode()
    return b"".join((head, b"\n", *(result.body for result in decided.results)))


def decode_decided(value: bytes) -> Decided:
    """Return the result in a row's value."""
    head, _, bodies = value.partition(b"\n")
    fields = json.loads(head)
    results: list[CallResult] = []
    at = 0
    for kind, length in fields["results"]:
        results.append(CallResult(kind, bodies[at : at + length]))
        at += length
    return Decided(fields["by"], tuple(results))
