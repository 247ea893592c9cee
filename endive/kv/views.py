"""Views: what a reader sees, and how it gets a newer one. Checkpoints, which make a view durable.

A view is a manifest and the WAL that follows it, up to the first gap: every entry before the gap, and none behind it,
so a reader never sees half a batch, nor a later write without the earlier ones.

**What can race.** Between a reader's read of the manifest and its listing of the WAL, entries are compacted and
deleted. The listing then begins with a gap, and the old manifest does not have the rows either: a view made of the two
lacks acknowledged writes, without a sign that anything is missing. So the reader looks for a newer manifest after it
has read the WAL, and starts over from it if entries have been compacted since. A missing object means the same, and is
an error only if there is no newer manifest.
"""

from dataclasses import dataclass

from endive.errors import (
    AttemptsExhaustedError,
    CheckpointGoneError,
    ConfigurationError,
    MissingObjectError,
    OutcomeUnknownError,
    StoreNotFoundError,
)
from endive.kv.log.wal import WAL, WalEntry, replay
from endive.kv.manifest import RESERVED, Checkpoint, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.protocol.fencing import contiguous, contiguous_end
from endive.protocol.requests import Get, NewId, Now, Steps, ask
from endive.protocol.sequenced import ATTEMPTS_MAX, Numbered, newest, newest_for_certain, propose, update

ROUNDS_MAX = 100


@dataclass(frozen=True)
class View:
    """A manifest and the WAL entries that follow it, without a gap."""

    manifest: Numbered[StoreManifest]
    entries: tuple[WalEntry, ...]
    wal_end: int
    """The last WAL entry of the view."""


def newest_view(known: View | None = None) -> Steps[View]:
    """Return the newest view; `known`: an earlier one, whose entries need not be read again."""
    manifest = yield from _require_newest(is_known=known is not None)
    for _ in range(ROUNDS_MAX):
        after = manifest.value.wal_id_last_compacted
        end, has_vanished = yield from contiguous(WAL, after, manifest.value.max_parallel_writes)
        entries = yield from _entries(after, end, known)
        newer = yield from newer_than(manifest)
        if newer is None and (entries is None or has_vanished):
            raise MissingObjectError(WAL.path_of(after + 1 if entries is None else end + 1))
        if entries is not None and not has_vanished and (newer is None or newer.value.wal_id_last_compacted == after):
            return View(newer or manifest, entries, end)
        # Entries have been compacted since the manifest was read, so the listing may lack entries that were deleted.
        manifest = newer or manifest
    raise AttemptsExhaustedError(MANIFESTS.prefix, ROUNDS_MAX)


def _require_newest(is_known: bool) -> Steps[Numbered[StoreManifest]]:
    manifest = yield from newest(MANIFESTS) if is_known else newest_for_certain(MANIFESTS)
    if manifest is None:
        raise StoreNotFoundError(MANIFESTS.prefix)
    return manifest


def newer_than(manifest: Numbered[StoreManifest]) -> Steps[Numbered[StoreManifest] | None]:
    """Return the newest manifest if it is newer than this one."""
    return (yield from newest(MANIFESTS, manifest.number))


def _entries(after: int, end: int, known: View | None) -> Steps[tuple[WalEntry, ...] | None]:
    """Return the entries after `after`, reading only those that are not known."""
    kept = () if known is None else tuple(entry for entry in known.entries if after < entry.number <= end)
    if kept and kept[0].number != after + 1:
        kept = ()
    epoch = max((entry.epoch for entry in kept), default=0)
    fresh = yield from replay(kept[-1].number if kept else after, end, epoch)
    return None if fresh is None else kept + fresh


def create_checkpoint(lifetime_s: int, name: str = "", source: str | None = None) -> Steps[Checkpoint]:
    """Create a checkpoint of the store's present state; `lifetime_s` 0: it never expires.

    `source`: create it of the state of another checkpoint instead, by id or name; `CheckpointGoneError` if there is
    none. `ConfigurationError` if a checkpoint that has not expired has this name.
    """
    if name.startswith(RESERVED):
        raise ConfigurationError(name, [f"names that begin with {RESERVED} are reserved; choose another name"])
    return (yield from add_checkpoint(lifetime_s, name, source))


def add_checkpoint(lifetime_s: int, name: str = "", source: str | None = None) -> Steps[Checkpoint]:
    """Create a checkpoint with any name.

    It names the manifest that is written with it, which says how far the WAL goes, or the manifest of its `source`.
    That one is active as long as the source is in the manifest, and so it is in the manifest that is written. Reserved
    names may repeat.
    """
    put_id = yield from ask(NewId())
    now_ms = yield from ask(Now())
    expire_unix_s = now_ms // 1000 + lifetime_s if lifetime_s else 0
    is_unique = name != "" and not name.startswith(RESERVED)
    for _ in range(ATTEMPTS_MAX):
        base = yield from newest(MANIFESTS)
        if base is None:
            raise StoreNotFoundError(MANIFESTS.prefix)
        for checkpoint in base.value.checkpoints:
            if checkpoint.id == put_id:
                return checkpoint  # an earlier attempt, whose outcome was unknown
            if name == checkpoint.name and is_unique and not checkpoint.is_expired(now_ms // 1000):
                raise ConfigurationError(
                    name, ["there is a checkpoint of this name; delete it, or choose another name"]
                )
        if source is None:
            end = yield from contiguous_end(WAL, base.value.wal_id_last_compacted)
            created = Checkpoint(put_id, base.number + 1, expire_unix_s, name)
        else:
            end = base.value.wal_id_last_seen
            created = Checkpoint(put_id, base.value.checkpoint(source).manifest_id, expire_unix_s, name)
        try:
            manifest = yield from propose(MANIFESTS, base, base.value.with_checkpoint(put_id, created, end))
        except OutcomeUnknownError:
            continue
        if manifest is not None:
            return created
    raise AttemptsExhaustedError(MANIFESTS.prefix, ATTEMPTS_MAX)


def refresh_checkpoint(checkpoint_id: str, lifetime_s: int) -> Steps[None]:
    """Let a checkpoint expire `lifetime_s` from now; 0: never. `CheckpointGoneError` if it was deleted."""
    put_id = yield from ask(NewId())
    now_ms = yield from ask(Now())
    expire_unix_s = now_ms // 1000 + lifetime_s if lifetime_s else 0
    yield from update(MANIFESTS, lambda base: base.value.with_checkpoint_expiry(put_id, checkpoint_id, expire_unix_s))


def delete_checkpoint(checkpoint_id: str) -> Steps[None]:
    """Delete a checkpoint. Idempotent."""
    put_id = yield from ask(NewId())
    yield from update(MANIFESTS, lambda base: base.value.without_checkpoints(put_id, frozenset((checkpoint_id,))))


def view_at(checkpoint_id: str) -> Steps[View]:
    """Return the view of a checkpoint, by id or by name."""
    current = yield from newest(MANIFESTS)
    if current is None:
        raise StoreNotFoundError(MANIFESTS.prefix)
    number = current.value.checkpoint(checkpoint_id).manifest_id
    path = MANIFESTS.path_of(number)
    body = yield from ask(Get(path))
    if body is None:
        raise CheckpointGoneError(checkpoint_id)
    manifest = Numbered(number, MANIFESTS.decode(path, body))
    entries = yield from replay(manifest.value.wal_id_last_compacted, manifest.value.wal_id_last_seen)
    if entries is None:
        raise CheckpointGoneError(checkpoint_id)
    return View(manifest, entries, manifest.value.wal_id_last_seen)
