"""A shared store beside a dictionary: two members, works of several threads, whatever is done in whatever order."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from endive.kv import Store, StoreOptions
from endive.kv.maintenance.check import check_store
from endive.kv.transaction import Transaction
from endive.objects import MemoryStore
from endive.protocol.requests import Steps

OPTIONS = StoreOptions(compact_here=False, poll_interval_ms=3_600_000, retention_ms=0)
MEMBERS = 2
members = st.integers(0, MEMBERS - 1)
keys = st.binary(max_size=3)
changes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=20)), max_size=6)


class NoError(Exception):
    """Raised by a work that is told to."""


def change(rows: list[tuple[bytes, bytes | None]], fails: bool, transaction: Transaction) -> Steps[int]:
    """Put rows, and return how many of the keys held something before."""
    held = 0
    for place in range(len(rows)):
        before = yield from transaction.get(rows[place][0])
        held += before is not None
        put(transaction, *rows[place])
    if fails:
        raise NoError
    return held


def put(transaction: Transaction, key: bytes, value: bytes | None) -> None:
    if value is None:
        transaction.delete(key)
    else:
        transaction.put(key, value)


def add(key: bytes, transaction: Transaction) -> Steps[int]:
    held = yield from transaction.get(key)
    count = int.from_bytes(held or b"", "big") + 1
    transaction.put(key, count.to_bytes(4, "big"))
    return count


def scan(prefix: bytes, transaction: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
    return (yield from transaction.scan(prefix))


def get(key: bytes, transaction: Transaction) -> Steps[bytes | None]:
    return (yield from transaction.get(key))


class SharedStoreBesideADictionary(RuleBasedStateMachine):
    """Works, reads, compactions, collections, members that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = MemoryStore()
        self.stores = [Store(self.objects, "shared", OPTIONS) for _ in range(MEMBERS)]
        self.held: dict[bytes, bytes] = {}
        self.pool = ThreadPoolExecutor(4)

    @rule(member=members, rows=changes, fails=st.booleans())
    def transact(self, member: int, rows: list[tuple[bytes, bytes | None]], fails: bool) -> None:
        after = dict(self.held)
        count = 0
        for key, value in rows:
            count += key in after
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        try:
            assert self.stores[member].transact(partial(change, rows, fails)) == count
        except NoError:
            assert fails
            return
        assert not fails
        self.held = after

    @rule(key=keys, count=st.integers(1, 8))
    def add_from_threads(self, key: bytes, count: int) -> None:
        """All members and several threads add to one key at once: every sum comes up exactly once."""
        before = int.from_bytes(self.held.get(key, b"")[-4:], "big") if len(self.held.get(key, b"")) <= 4 else None
        if before is None:
            return
        work = partial(add, key)
        futures = [self.pool.submit(self.stores[number % MEMBERS].transact, work) for number in range(count)]
        assert sorted(future.result() for future in futures) == list(range(before + 1, before + count + 1))
        self.held[key] = (before + count).to_bytes(4, "big")

    @rule(member=members, prefix=keys)
    def read(self, member: int, prefix: bytes) -> None:
        expected = tuple((key, self.held[key]) for key in sorted(self.held) if key.startswith(prefix))
        assert self.stores[member].read(partial(scan, prefix)) == expected
        assert self.stores[member].read_cached(partial(scan, prefix)) == expected

    @rule(member=members, key=keys)
    def get(self, member: int, key: bytes) -> None:
        assert self.stores[member].read(partial(get, key)) == self.held.get(key)

    @rule(member=members, everything=st.booleans())
    def compact(self, member: int, everything: bool) -> None:
        self.stores[member].compact(everything)

    @rule(member=members)
    def collect(self, member: int) -> None:
        self.stores[member].collect()

    @rule(member=members)
    def reopen(self, member: int) -> None:
        self.stores[member].close()
        self.stores[member] = Store(self.objects, "shared", OPTIONS, create=False)

    @invariant()
    def nothing_is_damaged(self) -> None:
        assert self.stores[0].driver.run(check_store()).findings == ()

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.pool.shutdown()


SharedStoreBesideADictionary.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestSharedStoreBesideADictionary = SharedStoreBesideADictionary.TestCase
