"""Transaction functions as data: what a function has read, and the rows that it wants to write.

A function is code of one process. But it depends on nothing but its reads, so it can be run on the state that its
process knows, and its *read set* and *write set* are a call that any process can carry out: if every read still gives
the same, put the rows. Then the effect is that of the function run at this very moment. If a read gives something
else, the call is refused, nothing is written, and the owner runs the function again.

Reads are recorded as digests of 128 bits, so a call is about as large as its rows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from endive.errors import MissingObjectError, RefusalError
from endive.kv.log.intentions import INTENTION_BYTES_MAX
from endive.kv.log.state import StoreState
from endive.kv.log.topics import CarryOutPrepared
from endive.kv.procedures import Call, PortableFunction, procedure
from endive.kv.sst.merge import KeyRange
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import RESERVED, Outcome, Transaction, TransactionFunction, run_function
from endive.protocol.requests import Steps

NAME, VERSION = "endive.if_unchanged", 1
CHANGED = b"a row that the transaction has read was changed by a concurrent commit"
_DELETED = -1
_DIGEST_BYTES = 16
Found = tuple[tuple[bytes, bytes], ...]


@dataclass
class RecordingTransaction(Transaction):
    """A transaction that notes what a function reads, apart from the rows that it has put itself."""

    gets: dict[bytes, bytes] = field(default_factory=dict)
    """Digest of each value that was read."""
    scans: dict[bytes, bytes] = field(default_factory=dict)
    """Digest of the rows of each prefix that was scanned."""

    def get(self, key: bytes) -> Steps[bytes | None]:
        """Return the value of `key`, and note it."""
        value = yield from super().get(key)
        if key not in self.rows:
            self.gets.setdefault(key, digest_of_value(value))
        return value

    def get_many(self, keys: Sequence[bytes]) -> Steps[tuple[bytes | None, ...]]:
        """Return the value of each key, and note it."""
        values = yield from super().get_many(keys)
        for key, value in zip(keys, values, strict=True):
            if key not in self.rows:
                self.gets.setdefault(key, digest_of_value(value))
        return values

    def scan_many(self, prefixes: Sequence[bytes]) -> Steps[tuple[Found, ...]]:
        """Return the rows of each prefix, and note those that are not the function's own."""
        own, self.rows = self.rows, {}
        try:
            found = yield from super().scan_many(prefixes)
        finally:
            self.rows = own
        for prefix, rows in zip(prefixes, found, strict=True):
            self.scans.setdefault(prefix, digest_of_rows(rows))
        return tuple(self._with_own(prefix, rows) for prefix, rows in zip(prefixes, found, strict=True))

    def _with_own(self, prefix: bytes, rows: Found) -> Found:
        merged: dict[bytes, bytes | None] = dict(rows)
        merged.update((key, value) for key, value in self.rows.items() if key.startswith(prefix))
        return tuple((key, value) for key, value in sorted(merged.items()) if value is not None)

    def scan_range(self, keys: KeyRange) -> Steps[Found]:
        """Rows of the store's own are not for functions that others carry out."""
        raise NotImplementedError(str(keys))


@dataclass(frozen=True)
class Recorded:
    """Functions that were run on a state, as calls, and what each has returned."""

    calls: tuple[Call, ...]
    values: tuple[Any, ...]
    portable: tuple[PortableFunction, ...] = ()
    """The functions themselves, if they are called as procedures. Then there are no values."""

    def results(self, outcomes: Sequence[Outcome]) -> tuple[Outcome | None, ...]:
        """Return the outcome of each function, from those of the calls; None: refused, it has to be run again.

        A procedure that refuses has decided, as the function itself would have.
        """
        if self.portable:
            return tuple(one.outcome(result) for one, result in zip(self.portable, outcomes, strict=True))
        of_functions = outcomes[len(self.calls) - len(self.values) :]
        return tuple(
            None if isinstance(result.error, RefusalError) else Outcome(value) if result.error is None else result
            for value, result in zip(self.values, of_functions, strict=True)
        )


def record_functions(
    functions: Sequence[TransactionFunction[Any]],
    state: StoreState,
    cache: TableCache,
    rows: Mapping[bytes, bytes | None],
) -> Steps[Recorded | None]:
    """Run functions one after the other, behind `rows` that are put in any case; return them as calls.

    None: they must be run on the newest state. A function has raised an error, which may be about an old state; or
    none of them wants to write.
    """
    earlier = dict(rows)
    calls: tuple[Call, ...] = (call_of({}, {}, rows),) if rows else ()
    values: tuple[Any, ...] = ()
    for number in range(len(functions)):
        transaction = RecordingTransaction(state.manifest.value.runs, state.recent, cache, earlier)
        try:
            outcome = yield from run_function(functions[number], transaction)
        except MissingObjectError:
            return None
        if outcome.error is not None or any(key.startswith(RESERVED) for key in transaction.rows):
            return None
        earlier = {**earlier, **transaction.rows}
        calls = (*calls, call_of(transaction.gets, transaction.scans, transaction.rows))
        values = (*values, outcome.value)
    return Recorded(calls, values) if earlier else None


def called_functions(functions: Sequence[TransactionFunction[Any]]) -> Recorded | None:
    """Return functions as calls of their procedures; None if not all of them have one."""
    candidates: tuple[object, ...] = tuple(functions)
    portable = tuple(one for one in candidates if isinstance(one, PortableFunction))
    calls = tuple(call for one in portable if (call := one.call()) is not None)
    return Recorded(calls, (), portable) if functions and len(calls) == len(functions) else None


def as_calls(
    functions: Sequence[TransactionFunction[Any]],
    rows: Mapping[bytes, bytes | None],
    state: StoreState,
    cache: TableCache,
) -> Steps[Recorded | None]:
    """Return functions and rows as calls that fit into an intention; None: only this process can commit them."""
    if any(isinstance(function, Call | CarryOutPrepared) for function in functions):
        return None
    recorded = None if rows else called_functions(functions)
    if recorded is None:
        recorded = yield from record_functions(functions, state, cache, rows)
    return recorded if recorded is not None and size_of(recorded.calls) <= INTENTION_BYTES_MAX else None


def size_of(calls: Sequence[Call]) -> int:
    """Return the size of the calls' arguments, in bytes."""
    return sum(len(call.argument) for call in calls)


@procedure(NAME, VERSION)
def put_if_unchanged(tx: Transaction, argument: bytes) -> Steps[bytes]:
    """Put rows if reads give what they gave; the argument is that of `call_of`."""
    gets, scans, rows = _decoded(argument)
    keys = tuple(gets)
    values = yield from tx.get_many(keys)
    if any(digest_of_value(value) != gets[key] for key, value in zip(keys, values, strict=True)):
        raise RefusalError(CHANGED)
    prefixes = tuple(scans)
    found: tuple[Found, ...] = ()
    if prefixes:
        found = yield from tx.scan_many(prefixes)
    if any(digest_of_rows(held) != scans[prefix] for prefix, held in zip(prefixes, found, strict=True)):
        raise RefusalError(CHANGED)
    for key, value in rows.items():
        if value is None:
            tx.delete(key)
        else:
            tx.put(key, value)
    return b""


# Bytes.


def digest_of_value(value: bytes | None) -> bytes:
    """Return a digest that differs for different values, and for none."""
    return blake2b(b"none" if value is None else b"held" + value, digest_size=_DIGEST_BYTES).digest()


def digest_of_rows(rows: Found) -> bytes:
    """Return a digest that differs for different rows."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for key, value in rows:
        digest.update(b"%d %d " % (len(key), len(value)))
        digest.update(key)
        digest.update(value)
    return digest.digest()


def call_of(gets: Mapping[bytes, bytes], scans: Mapping[bytes, bytes], rows: Mapping[bytes, bytes | None]) -> Call:
    """Return a call that puts rows if reads give what they gave: a line of JSON with lengths, then all bytes."""
    head = {
        "gets": [len(key) for key in gets],
        "scans": [len(prefix) for prefix in scans],
        "rows": [[len(key), _DELETED if value is None else len(value)] for key, value in rows.items()],
    }
    parts = [json.dumps(head, separators=(",", ":")).encode(), b"\n"]
    for reads in (gets, scans):
        for key, digest in reads.items():
            parts += (key, digest)
    for key, value in rows.items():
        parts += (key, value or b"")
    return Call(NAME, VERSION, b"".join(parts))


def _decoded(argument: bytes) -> tuple[dict[bytes, bytes], dict[bytes, bytes], dict[bytes, bytes | None]]:
    head, _, body = argument.partition(b"\n")
    fields = json.loads(head)
    at = 0
    reads: list[dict[bytes, bytes]] = []
    for kind in ("gets", "scans"):
        held: dict[bytes, bytes] = {}
        for length in fields[kind]:
            held[body[at : at + length]] = body[at + length : at + length + _DIGEST_BYTES]
            at += length + _DIGEST_BYTES
        reads.append(held)
    rows: dict[bytes, bytes | None] = {}
    for key_length, value_length in fields["rows"]:
        key = body[at : at + key_length]
        at += key_length
        rows[key] = None if value_length == _DELETED else body[at : at + value_length]
        at += max(value_length, 0)
    if at != len(body):
        raise ValueError("lengths do not add up")
    return reads[0], reads[1], rows
