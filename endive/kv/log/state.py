"""A writer's state of the store: a manifest and the rows of the WAL behind it, as one value that never changes.

A writer of either kind holds one such state and replaces it when it learns something newer.

**Reading.** `refreshed` reads WAL entries and then looks for a newer manifest. An entry is deleted only by a garbage
collector that has read a manifest with a later last compacted entry. The last compacted entry only grows from manifest
to manifest, and the newest manifest is never deleted. So if no newer manifest has compacted the entries that were read,
none of them had been deleted before, and what was read is what the log holds. The same look makes a read fresh: it has
everything that was durable when it began.

**A compaction meanwhile.** If a newer manifest has compacted some of the entries that were read, the entries behind its
last compacted one are as they were read, by the same argument, and so is the part of the listing behind it. Those
before it are not used: they may have been deleted and created again by a writer that had stalled. If the listing
shows entries behind it that were not read, because entries before them had been deleted, the refresh starts over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from endive.errors import AttemptsExhaustedError, MissingObjectError
from endive.kv.log.intentions import names_in
from endive.kv.log.recent import Recent
from endive.kv.log.wal import WAL, WalEntry, decode_entries, paths_between, read_bodies
from endive.kv.manifest import StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.reading import TableCache
from endive.kv.sst.warming import warm
from endive.protocol.beside import beside
from endive.protocol.fencing import contiguous_in, listed
from endive.protocol.requests import GetAll, Steps, ask
from endive.protocol.sequenced import Numbered, newest, newest_listed

ROUNDS_MAX = 100
READ_AHEAD = 2
"""Entries that a writer requests together when it has lost a race: usually it is one or two behind."""


@dataclass(frozen=True)
class StoreState:
    """A manifest, and all rows of the WAL after it, up to one entry."""

    manifest: Numbered[StoreManifest]
    wal_end: int
    """The last WAL entry whose rows are known."""
    row_seq_last: int
    recent: Recent = field(default_factory=Recent)
    own_epoch: int = 0
    """The epoch that this process has for itself; 0: it writes in a shared one."""
    wal_epoch: int = 0
    """The highest epoch of the WAL entries that were read: it decides which later ones are void."""
    intentions: tuple[str, ...] = ()
    """Names of the intentions that the last listing showed. A hint: some may be decided, others may have come since."""

    @property
    def is_writable(self) -> bool:
        """Whether this process may write in the newest epoch that it knows."""
        newest = self.manifest.value
        return newest.writer_epoch == self.own_epoch if self.own_epoch else newest.is_joinable

    @property
    def uncompacted_entries(self) -> int:
        """WAL entries that are not in the levels."""
        return self.wal_end - self.manifest.value.wal_id_last_compacted

    def with_entries(self, entries: Sequence[WalEntry]) -> "StoreState":
        """Return the state after the next WAL entries."""
        state = self
        for entry in entries:
            recent, seq = state.recent, state.row_seq_last
            if entry.rows.keys:
                recent = recent.with_entry(entry, state.manifest.value.wal_id_last_compacted)
                seq = max(seq, *entry.rows.seqs)
            epoch = max(state.wal_epoch, entry.epoch)
            state = replace(state, wal_end=entry.number, row_seq_last=seq, recent=recent, wal_epoch=epoch)
        return state

    def with_manifest(self, newer: Numbered[StoreManifest]) -> "StoreState":
        """Return the state with a newer manifest, all of whose compacted entries are known."""
        return replace(self, manifest=newer, recent=self.recent.without(newer.value.wal_id_last_compacted))

    def combined(self, other: "StoreState") -> "StoreState":
        """Return the newer of two states of one process, with the newer manifest.

        The one that knows more of the log may know an older manifest, or not yet that an epoch was claimed.
        """
        newer, older = (other, self) if other.wal_end >= self.wal_end else (self, other)
        if older.manifest.number > newer.manifest.number:
            newer = newer.with_manifest(older.manifest)
        epoch = newer.manifest.value.writer_epoch
        return replace(newer, own_epoch=epoch) if epoch in (self.own_epoch, other.own_epoch) else newer


def state_at(manifest: Numbered[StoreManifest], own_epoch: int = 0) -> StoreState:
    """Return the state of a manifest without the WAL behind it."""
    newest = manifest.value
    return StoreState(manifest, newest.wal_id_last_compacted, newest.row_seq_last_compacted, own_epoch=own_epoch)


def newest_state() -> Steps[StoreState | None]:
    """Return the newest state; None if there is no store."""
    manifest = yield from newest(MANIFESTS)
    if manifest is None:
        return None
    return (yield from refreshed(state_at(manifest)))


def newest_state_warmed(keys: Sequence[bytes], cache: TableCache) -> Steps[StoreState | None]:
    """Return the newest state, and read some of its rows ahead, in the same round trips."""
    manifest = yield from newest(MANIFESTS)
    if manifest is None:
        return None
    if not keys:
        return (yield from refreshed(state_at(manifest)))
    return (yield from beside(refreshed(state_at(manifest)), warm(manifest.value.runs, keys, cache)))


def refreshed(state: StoreState, is_behind: bool = False, read: tuple[WalEntry, ...] = ()) -> Steps[StoreState]:
    """Return the newest state: it has everything that was durable when this was called.

    `is_behind`: the next entry probably exists, so a few are requested at once instead of listed first. If the next one
    does not exist, nothing behind it was acknowledged, unless a newer manifest says that it was deleted. `read`: the
    next entries, read before this was called; the state then has these and need not have later ones.
    """
    for _ in range(ROUNDS_MAX):
        entries: tuple[WalEntry, ...] | None = read or None
        if is_behind:
            found = yield from _next_entries(state)
            entries = found if len(found) < READ_AHEAD else None
        seen: Seen | None = None
        if entries is None:
            seen = yield from _seen(state.wal_end)
        is_behind, read = False, ()
        newer, intentions = yield from look(state.manifest)
        state = replace(state, intentions=intentions)
        is_compacted = newer is not None and newer.value.wal_id_last_compacted > state.wal_end
        if newer is not None and is_compacted:
            kept = behind(newer, seen, state.own_epoch)
            if kept is None:
                state = replace(state_at(newer, state.own_epoch), intentions=intentions)
                continue
            after = replace(kept, intentions=intentions)
        else:
            entries = entries if seen is None else seen.entries(state.wal_end, state.wal_epoch)
            if entries is None:
                raise MissingObjectError(WAL.path_of(state.wal_end + 1))
            after = state.with_entries(entries)
        if newer is None:
            return after
        was_shared = newer.value.shared_epoch == state.manifest.value.shared_epoch
        state = after if is_compacted else after.with_manifest(newer)
        if was_shared:
            return state
        # The fences of that epoch may have come after the listing: read again, so that the state includes them.
    raise AttemptsExhaustedError(WAL.prefix, ROUNDS_MAX)


class Seen(NamedTuple):
    """WAL objects behind an entry: the numbers that a listing has shown, and the bodies of those without a gap."""

    after: int
    numbers: tuple[int, ...]
    bodies: tuple[bytes | None, ...]
    """None: the object has vanished since the listing."""

    def entries(self, after: int, epoch: int) -> tuple[WalEntry, ...] | None:
        """Return all entries behind `after` that the listing shows without a gap; None: not all of them were read."""
        count = contiguous_in(self.numbers, after) - after
        first = after - self.after
        bodies = [body for body in self.bodies[first : first + count] if body is not None]
        return decode_entries(after, bodies, epoch) if len(bodies) == count else None


def _seen(after: int) -> Steps[Seen]:
    """List the WAL behind an entry, and read what follows it without a gap."""
    numbers = yield from listed(WAL, after)
    bodies = yield from read_bodies(after, contiguous_in(numbers, after))
    return Seen(after, numbers, bodies)


def behind(manifest: Numbered[StoreManifest], seen: Seen | None, own_epoch: int) -> StoreState | None:
    """Return the state of a manifest with the entries behind it that were read before it; None: not all of them were.

    The manifest must be the newest at a time after the reading.
    """
    state = state_at(manifest, own_epoch)
    entries = seen.entries(state.wal_end, state.wal_epoch) if seen is not None else None
    return None if entries is None else state.with_entries(entries)


def look(manifest: Numbered[StoreManifest]) -> Steps[tuple[Numbered[StoreManifest] | None, tuple[str, ...]]]:
    """Return the newest manifest if it is newer than this one, and the names of pending intentions: one listing."""
    newer, listing = yield from newest_listed(MANIFESTS, manifest.number)
    return newer, names_in(listing)


def _next_entries(state: StoreState) -> Steps[tuple[WalEntry, ...]]:
    """Return the entries after a state, up to the first that does not exist; no more than a few."""
    bodies = yield from ask(GetAll(paths_between(state.wal_end, state.wal_end + READ_AHEAD)))
    count = bodies.index(None) if None in bodies else len(bodies)
    return decode_entries(state.wal_end, [body for body in bodies[:count] if body is not None], state.wal_epoch)
