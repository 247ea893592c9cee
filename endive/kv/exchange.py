"""The exchange: intentions on topics, for the part of a program that prepares and carries them out.

The store knows how an intention is announced, found and decided (`endive.kv.log.topics`). What it is about, and which
files it needs, is known by the layer above: the catalog has a topic for every table.
"""

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, TypeVar

from endive.drivers.blocking import BlockingDriver
from endive.errors import MissingObjectError
from endive.kv.log.combining import PENDING_MAX
from endive.kv.log.guests import await_exclusive
from endive.kv.log.helping import announce, await_entry, pending, read_intentions, result_of
from endive.kv.log.intentions import PREFIX, Decided, Intention, outcome_key, position_of, topic_of
from endive.kv.log.topics import AlreadyDecided, CarryOutPrepared, PreparedFunction
from endive.kv.procedures import Call
from endive.kv.sst.reading import TableCache
from endive.kv.writer import Writer

T = TypeVar("T")
REFRESHES_MAX = 10
Carrier = Callable[[str], None]
"""Carries out the intentions on a topic; what it does not know how to prepare it leaves."""


class Exchange:
    """Intentions on topics. Safe to use from several threads, one for each topic at a time."""

    def __init__(self, writer: Writer, driver: BlockingDriver, cache: TableCache) -> None:
        self._writer = writer
        self._driver = driver
        self._cache = cache
        self._known: dict[str, Intention] = {}
        self.carriers: list[Carrier] = []
        """Asked to carry out what is pending: by an exclusive writer, and before files are deleted."""

    # For owners.

    def announce(self, topic: str, calls: tuple[Call, ...]) -> Intention:
        """Announce calls, and learn what is pending. They may be carried out from now on, whatever happens here."""
        own = self._driver.run(announce(self._writer.state, calls, self._writer.helper.name, topic))
        self._known[own.name] = own
        return own

    def refresh(self) -> None:
        """Learn what other processes have committed and announced."""
        self._writer.refresh()

    def result(self, own: Intention) -> Decided | None:
        """Return how an intention was decided, as far as this process knows; `IntentionExpiredError`: not any more."""
        for _ in range(REFRESHES_MAX):
            try:
                return self._driver.run(result_of(own, self._writer.state, self._cache))
            except MissingObjectError:
                self._writer.refresh()
        raise MissingObjectError(own.path)

    def await_entry(self, wait_s: float) -> bool:
        """Return when another WAL entry exists, whose rows are then known; False: there was none for so long."""
        poll_ms = self._writer.helper.hints(is_last=False).poll_ms
        before, end_s = self._writer.state.wal_end, monotonic() + wait_s
        while self._writer.state.wal_end == before and monotonic() < end_s:
            self._writer.learn(self._driver.run(await_entry(self._writer.state, 1, poll_ms)))
        return self._writer.state.wal_end > before

    def finished(self, own: Intention, decided: Decided) -> None:
        """Delete an intention that is decided, without waiting."""
        self._known.pop(own.name, None)
        self._writer.helper.count(own, decided, self._writer.state.wal_end)
        self._writer.helper.delete((own.path,))

    def forget(self, own: Intention) -> None:
        """Delete an intention that this process has carried out itself, without waiting."""
        self.finished(own, Decided(self._writer.helper.name, ()))

    @property
    def process(self) -> str:
        """The name of this process in the results of what it carries out."""
        return self._writer.helper.name

    @property
    def is_shared(self) -> bool:
        """Whether this process writes beside others, as far as it knows: no epoch is its own."""
        return not self._writer.state.own_epoch

    @property
    def is_exclusive_elsewhere(self) -> bool:
        """Whether another process is the exclusive writer, as far as this one knows."""
        return not self._writer.state.is_writable

    def await_exclusive(self, own: Intention) -> None:
        """Wait for the exclusive writer elsewhere to carry out an intention; for a few seconds at most."""
        state, _ = self._driver.run(await_exclusive(self._writer.state, own, self._cache))
        self._writer.learn(state)

    @property
    def entry_s(self) -> float:
        """How long an undisturbed commit takes here."""
        return self._writer.helper.hints(is_last=False).entry_ms / 1000

    # For those that carry out.

    def pending(self, topic: str) -> tuple[str, ...]:
        """Return the names of the intentions on a topic that are pending as far as this process knows, in order."""
        return pending(self._writer.state, topic)

    def names(self) -> tuple[str, ...]:
        """Return the names of the intentions on all topics that are pending as far as this process knows."""
        names = self._writer.state.intentions
        return tuple(name for name in names if topic_of(name) and not self.is_decided(name))

    @property
    def is_full(self) -> bool:
        """Whether so many intentions are pending that no other one should be announced."""
        return len(self.names()) >= PENDING_MAX

    def topics(self) -> tuple[str, ...]:
        """Return the topics with pending intentions, as far as this process knows."""
        return tuple(sorted({topic_of(name) for name in self.names()}))

    def read(self, topic: str, can_carry_out: Callable[[Intention], bool]) -> tuple[Intention, ...]:
        """Return the pending intentions on a topic, in the order of their names.

        Those that this process cannot carry out are among them, and do not count if there are more than can be read.
        """
        known = tuple(self._known.values())
        found = self._driver.run(read_intentions(self._writer.state, known, topic, can_carry_out))
        names = set(self._writer.state.intentions)
        self._known = {name: one for name, one in self._known.items() if name in names}
        self._known.update((one.name, one) for one in found)
        return found

    def carry_out(self, names: Iterable[str], function: PreparedFunction[T]) -> T | AlreadyDecided:
        """Run a function that was prepared for intentions; return when its rows and their results are durable."""
        one: CarryOutPrepared[T] = CarryOutPrepared(tuple(names), self._writer.helper.name, function)
        outcome: Any = self._writer.group.submit(one).wait()
        result: T | AlreadyDecided = outcome
        if isinstance(result, AlreadyDecided):
            self._writer.helper.delete(PREFIX + name for name in result.names)
        return result

    def is_decided(self, name: str) -> bool:
        """Whether a WAL entry in memory has decided an intention."""
        return self._writer.state.recent.find(outcome_key(name)) is not None

    def carried(self, count: int) -> None:
        """Count intentions of other processes that this one has carried out."""
        self._writer.helper.carried_for_others += count

    def entries_since(self, name: str) -> int:
        """Return how many WAL entries there are since an intention was made."""
        return self._writer.state.wal_end - position_of(name)

    def carry_out_pending(self) -> None:
        """Let carriers carry out what is pending on all topics."""
        for topic in self.topics():
            for carrier in tuple(self.carriers):
                if self.pending(topic):
                    carrier(topic)
