"""The store beside a dictionary: whatever is done in whatever order, both hold the same."""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from endive.errors import StoreClosedError
from endive.kv import Reader, Store, StoreOptions
from endive.kv.maintenance.check import check_store
from endive.objects import MemoryStore

OPTIONS = StoreOptions(compact_here=False, poll_interval_ms=3_600_000, flush_interval_ms=3_600_000, retention_ms=0)
keys = st.binary(max_size=3)
values = st.binary(max_size=20)


class StoreBesideADictionary(RuleBasedStateMachine):
    """Puts, deletes, batches, compactions, collections, crashes, checkpoints."""

    checkpoints = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.objects = MemoryStore()
        self.store = Store(self.objects, options=OPTIONS)
        self.held: dict[bytes, bytes] = {}
        self.durable: dict[bytes, bytes] = {}

    @rule(key=keys, value=values, durable=st.booleans())
    def put(self, key: bytes, value: bytes, durable: bool) -> None:
        self.store.put(key, value, await_durable=durable)
        self.held[key] = value
        if durable:
            self.durable = dict(self.held)  # a put that waits takes all that wait along

    @rule(key=keys, durable=st.booleans())
    def delete(self, key: bytes, durable: bool) -> None:
        self.store.delete(key, await_durable=durable)
        self.held.pop(key, None)
        if durable:
            self.durable = dict(self.held)

    @rule(rows=st.lists(st.tuples(keys, st.none() | values), min_size=1, max_size=8))
    def write(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        self.store.write(rows)
        for key, value in rows:
            if value is None:
                self.held.pop(key, None)
            else:
                self.held[key] = value
        self.durable = dict(self.held)

    @rule(everything=st.booleans())
    def compact(self, everything: bool) -> None:
        self.store.compact(everything)
        self.durable = dict(self.held)

    @rule()
    def collect(self) -> None:
        self.store.collect()

    @rule()
    def crash(self) -> None:
        """Open again without closing: rows that were not durable are gone."""
        old = self.store
        self.store = Store(self.objects, options=OPTIONS)
        self.held = dict(self.durable)
        old._writer._halt(StoreClosedError("crashed"))
        with suppress(StoreClosedError):  # raised if rows were lost
            old.close()

    @rule(target=checkpoints)
    def checkpoint(self) -> tuple[str, dict[bytes, bytes]]:
        created = self.store.checkpoint(0)
        self.durable = dict(self.held)
        return created.id, dict(self.held)

    @rule(saved=checkpoints)
    def read_checkpoint(self, saved: tuple[str, dict[bytes, bytes]]) -> None:
        with Reader(self.objects, checkpoint=saved[0]) as reader:
            assert dict(reader.scan()) == saved[1]

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.held.get(key)
        assert self.store.get(key, durable=True) == self.durable.get(key)

    @rule(start=st.none() | keys, end=st.none() | keys)
    def scan(self, start: bytes | None, end: bytes | None) -> None:
        expected = [
            (key, self.held[key])
            for key in sorted(self.held)
            if (start is None or key >= start) and (end is None or key < end)
        ]
        assert list(self.store.scan(start, end)) == expected

    @rule(prefix=keys)
    def scan_prefix(self, prefix: bytes) -> None:
        assert dict(self.store.scan(prefix=prefix)) == {k: v for k, v in self.held.items() if k.startswith(prefix)}

    @rule()
    def read_elsewhere(self) -> None:
        with Reader(self.objects) as reader:
            assert dict(reader.scan()) == self.durable

    @invariant()
    def nothing_is_damaged(self) -> None:
        assert self.store.driver.run(check_store()).findings == ()

    def teardown(self) -> None:
        self.store.close()


StoreBesideADictionary.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestStoreBesideADictionary = StoreBesideADictionary.TestCase
