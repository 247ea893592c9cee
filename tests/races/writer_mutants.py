"""Faulty variants of shared and exclusive writers. Each is a plausible mistake; the explorer must find it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from endive.errors import FencedError
from endive.kv.log.committing import Committed, append_shared, prepare
from endive.kv.log.opening import require_newest
from endive.kv.log.state import Seen, StoreState, state_at
from endive.kv.log.wal import WAL, WalEntry, decode_entries, replay
from endive.kv.manifest import Checkpoint, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import encode_fence
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import TransactionFunction
from endive.kv.views import newer_than
from endive.protocol.fencing import contiguous_end, fence
from endive.protocol.requests import NewId, Steps, ask
from endive.protocol.sequenced import Numbered, newest, propose, update
from tests.races.mutants import swapped


def no_look_after_the_create() -> Any:
    """A create that succeeds is taken for a commit."""

    def settle(state: StoreState, entry: WalEntry, is_ours: bool) -> Steps[tuple[StoreState, bool]]:
        yield from ()
        return state.with_entries((entry,)), True

    return swapped(("endive.kv.log.committing._settle", settle))


def compacted_means_stale() -> Any:
    """An entry that was compacted when its writer looks is taken for another writer's, without checking its put id."""

    def settle(state: StoreState, entry: WalEntry, is_ours: bool) -> Steps[tuple[StoreState, bool]]:
        newer = yield from newer_than(state.manifest)
        if newer is None or newer.value.wal_id_last_compacted < entry.number:
            return state.with_entries((entry,)), True
        return state_at(newer), False

    return swapped(("endive.kv.log.committing._settle", settle))


def no_look_after_reading() -> Any:
    """Entries that were read are believed, though they may have been deleted and created again."""

    def refreshed(state: StoreState, is_behind: bool = False) -> Steps[StoreState]:
        end = yield from contiguous_end(WAL, state.wal_end)
        entries = yield from replay(state.wal_end, end)
        if entries:
            return state.with_entries(entries)
        newer = yield from newer_than(state.manifest)
        return state if newer is None else state_at(newer)

    return swapped(
        *((f"endive.kv.log.{module}.refreshed", refreshed) for module in ("state", "epochs", "committing")),
    )


def a_gap_is_the_end() -> Any:
    """After a compaction, entries that were read are kept, and those behind deleted ones are taken for missing."""

    def behind(manifest: Numbered[StoreManifest], seen: Seen | None, own_epoch: int) -> StoreState | None:
        state = state_at(manifest, own_epoch)
        if seen is None:
            return None
        bodies = takewhile(lambda body: body is not None, seen.bodies[max(state.wal_end - seen.after, 0) :])
        return state.with_entries(decode_entries(state.wal_end, [body or b"" for body in bodies], 0))

    return swapped(("endive.kv.log.state.behind", behind))


def compacted_entries_kept() -> Any:
    """After a compaction, all entries that were read are kept, those before it included."""

    def behind(manifest: Numbered[StoreManifest], seen: Seen | None, own_epoch: int) -> StoreState | None:
        state = state_at(manifest, own_epoch)
        entries = None if seen is None else seen.entries(seen.after, 0)
        if seen is None or entries is None or seen.after + len(entries) < state.wal_end:
            return None
        return replace(state, wal_end=seen.after).with_entries(entries)

    return swapped(("endive.kv.log.state.behind", behind))


def shared_before_the_fences() -> Any:
    """The epoch is marked as shared as soon as it is claimed."""

    def claim_shared() -> Steps[None]:
        put_id = yield from ask(NewId())
        base = yield from require_newest()
        end = yield from contiguous_end(WAL, base.value.wal_id_last_compacted)
        pin = Checkpoint(put_id, base.number + 1, 120)
        claimed = yield from propose(MANIFESTS, base, base.value.with_writer(put_id, 1, pin))
        if claimed is None:
            raise FencedError("writer", 0, 0)
        epoch = claimed.value.writer_epoch
        yield from update(MANIFESTS, lambda base: base.value.with_shared(put_id, epoch))
        yield from fence(WAL, end + 1, epoch, 1, encode_fence(epoch, put_id))

    return swapped(("endive.kv.log.epochs.claim_shared", claim_shared))


def joined_without_replaying() -> Any:
    """A process that joins lists the log, and does not read its entries."""

    def newest_state() -> Steps[StoreState | None]:
        manifest = yield from newest(MANIFESTS)
        if manifest is None:
            return None
        end = yield from contiguous_end(WAL, manifest.value.wal_id_last_compacted)
        return StoreState(manifest, end, 0)

    return swapped(("endive.kv.log.epochs.newest_state", newest_state))


def not_computed_again() -> Any:
    """Rows that were computed for an entry that exists are written to the next."""

    def commit_batch(
        state: StoreState, functions: Sequence[TransactionFunction[Any]], cache: TableCache, refreshes_max: int = 1
    ) -> Steps[Committed]:
        prepared = yield from prepare(state, functions, cache)
        entry = prepared.entry
        assert entry is not None
        for losses in range(5):
            state, is_committed = yield from append_shared(state, entry)
            if is_committed:
                return Committed(state, prepared.outcomes, state.wal_end, losses)
            entry = replace(entry, number=state.wal_end + 1)
        raise AssertionError("lost five races")

    return swapped(("tests.races.shared_writers.commit_batch", commit_batch))


def expired_claims_publish() -> Any:
    """The claim of maintenance is trusted for as long as its owner works: a newer compactor epoch does not stop it."""
    return swapped(("endive.kv.manifest.StoreManifest._require_compactor", lambda *_: None))


def no_fence_is_kept() -> Any:
    """Fences are deleted with other entries, even if an exclusive writer may still want their places."""
    return swapped(("endive.kv.log.opening.must_be_kept", lambda _: False))
