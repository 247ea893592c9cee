"""Faulty variants of what members do. Each is a mistake that somebody would make; the explorer must find it."""

from collections.abc import Sequence
from typing import Any

from endive.errors import FencedError
from endive.kv.log.opening import Group, replay, require_newest
from endive.kv.log.shared_epoch import Committed, MemberState, state_at
from endive.kv.log.wal import WAL
from endive.kv.manifest import Checkpoint
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import encode_fence
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import TransactionFunction, run_functions
from endive.kv.views import newer_than
from endive.protocol.fencing import contiguous_end, fence
from endive.protocol.requests import NewId, Steps, ask
from endive.protocol.sequenced import newest, propose, update
from tests.races.mutants import swapped


def no_look_after_the_create() -> Any:
    """A create that succeeds is taken for a commit."""

    def settle(state: MemberState, group: Group, put_id: str, is_ours: bool) -> Steps[tuple[MemberState, bool]]:
        yield from ()
        return state.with_groups((group,)), True

    return swapped(("endive.kv.log.shared_epoch._settle", settle))


def compacted_means_ghost() -> Any:
    """A slot that was compacted when its creator looks is taken for somebody else's, without asking whose it was."""

    def settle(state: MemberState, group: Group, put_id: str, is_ours: bool) -> Steps[tuple[MemberState, bool]]:
        newer = yield from newer_than(state.manifest)
        if newer is None or newer.value.wal_id_last_compacted < group.slot:
            return state.with_groups((group,)), True
        return state_at(newer), False

    return swapped(("endive.kv.log.shared_epoch._settle", settle))


def no_look_after_reading() -> Any:
    """Slots that were read are believed, though they may have been collected and filled again."""

    def catch_up(state: MemberState, is_behind: bool = False) -> Steps[MemberState]:
        end = yield from contiguous_end(WAL, state.wal_end)
        groups = yield from replay(state.wal_end, end)
        if groups:
            return state.with_groups(groups)
        newer = yield from newer_than(state.manifest)
        return state if newer is None else state_at(newer)

    return swapped(("endive.kv.log.shared_epoch.catch_up", catch_up))


def shared_before_the_fences() -> Any:
    """The epoch is marked as shared as soon as it is claimed."""

    def claim_shared() -> Steps[None]:
        put_id = yield from ask(NewId())
        base = yield from require_newest()
        end = yield from contiguous_end(WAL, base.value.wal_id_last_compacted)
        pin = Checkpoint(put_id, base.number + 1, 120)
        claimed = yield from propose(MANIFESTS, base, base.value.with_writer(put_id, 1, pin))
        if claimed is None:
            raise FencedError("member", 0, 0)
        epoch = claimed.value.writer_epoch
        yield from update(MANIFESTS, lambda base: base.value.with_shared(put_id, epoch))
        yield from fence(WAL, end + 1, epoch, 1, encode_fence(epoch, put_id))

    return swapped(("endive.kv.log.shared_epoch.claim_shared", claim_shared))


def joined_without_replaying() -> Any:
    """A process that joins looks where the log ends, and not what it holds."""

    def newest_state() -> Steps[MemberState | None]:
        manifest = yield from newest(MANIFESTS)
        if manifest is None:
            return None
        end = yield from contiguous_end(WAL, manifest.value.wal_id_last_compacted)
        return MemberState(manifest, end, 0)

    return swapped(("endive.kv.log.shared_epoch.newest_state", newest_state))


def not_computed_anew() -> Any:
    """Rows that were computed for a slot that is taken are written to the next."""

    def commit_group(
        state: MemberState, works: Sequence[TransactionFunction[Any]], cache: TableCache, looks_max: int = 1
    ) -> Steps[Committed]:
        from endive.kv.log.shared_epoch import _commit

        outcomes, rows = yield from run_functions(works, state.manifest.value.runs, state.recent, cache)
        for losses in range(5):
            state, committed = yield from _commit(state, rows)
            if committed:
                return Committed(state, outcomes, state.wal_end, losses)
        raise AssertionError("lost five races")

    return swapped(("tests.races.members.commit_group", commit_group))
