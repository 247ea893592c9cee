"""The manifest and its parts, as frozen values.

`StoreManifest` is the state of the store at one moment, as far as it is not in the WAL: a numbered object, replaced by
creating the next number. Everything here is a value; `with_…` methods return changed copies and hold the rules that
keep the changes of different processes from undoing each other.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from endive.errors import CheckpointGoneError, FencedError, InvariantError

SSTS_PER_EPOCH = 10**10
"""An SST's id is its compactor's epoch times this, plus a count: later epochs have higher ids, and no two share one."""
NEVER_EXPIRES = 0
RESERVED = "endive:"
"""Names of checkpoints that begin so are not for users (`endive.kv.maintenance.claim`)."""
PUT_IDS_KEPT = 256
"""WAL entries whose put ids the manifest records: the last ones that were compacted."""


class SstInfo(NamedTuple):
    """One file in `levels/`, with what a reader needs to decide whether to open it, and how.

    A manifest may have a hundred thousand of them, and a tuple is made several times as fast as a dataclass.
    """

    id: int
    size_bytes: int
    rows: int
    first_key: bytes
    last_key: bytes
    index_offset: int
    """Index, filter and footer are the file's end, from here on: one range request gets them."""
    store: str = ""
    """URL of the store that has the file; empty: this one. See `Parent`."""


@dataclass(frozen=True)
class SortedRun:
    """SSTs in key order that do not overlap. All rows of a run are newer than those of the runs behind it."""

    level: int
    ssts: tuple[SstInfo, ...]

    @cached_property
    def first_keys(self) -> list[bytes]:
        """The first key of each file, to find a key's file by."""
        return [sst.first_key for sst in self.ssts]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(sst.size_bytes for sst in self.ssts)


@dataclass(frozen=True)
class Checkpoint:
    """Keeps a manifest readable: the objects that it needs are not deleted while the checkpoint exists."""

    id: str
    manifest_id: int
    expire_unix_s: int
    """0: never. An expired checkpoint counts until a garbage collector has removed it from the manifest."""
    name: str = ""

    def is_expired(self, now_unix_s: int) -> bool:
        """Whether it has expired."""
        return self.expire_unix_s != NEVER_EXPIRES and self.expire_unix_s < now_unix_s


@dataclass(frozen=True)
class Parent:
    """Another store whose files this one uses: it was cloned from there (`endive.kv.clone`)."""

    url: str
    checkpoint_id: str
    """The checkpoint there that keeps the files."""
    sst_id_last: int
    """SSTs up to this id, and above that of the parent before it, are the parent's."""


@dataclass(frozen=True)
class StoreManifest:
    """The state of the store at one moment, as far as it is not in the WAL."""

    put_id: str
    """Distinguishes this object from one with the same content by another process."""
    writer_epoch: int = 0
    compactor_epoch: int = 0
    wal_id_last_compacted: int = 0
    """All WAL entries up to this one are in the levels. 0: none; entries start at 1."""
    wal_id_last_seen: int = 0
    """The last WAL entry without a gap when this was written. A checkpoint's view ends there."""
    row_seq_last_compacted: int = 0
    max_parallel_writes: int = 1
    """WAL entries that any writer, dead or alive, may have in flight. It grows and never shrinks."""
    sst_id_last: int = 0
    """SSTs up to this id are in use if a manifest names them, and garbage otherwise; others may be in progress."""
    runs: tuple[SortedRun, ...] = ()
    """Newest first; levels ascend."""
    checkpoints: tuple[Checkpoint, ...] = ()
    shared_epoch: int = 0
    """The writer epoch that several processes share, once its fences stand. 0: there has been none."""
    wal_put_ids: tuple[str, ...] = ()
    """Put ids of the last WAL entries that were compacted; the last one is that of `wal_id_last_compacted`."""

    parents: tuple[Parent, ...] = ()
    """Stores whose files this one uses, by ascending `sst_id_last`."""
    has_intentions: bool = False
    """Processes have announced transactions here: the store has rows of its own, and objects that name others' work."""

    @property
    def is_joinable(self) -> bool:
        """Whether the writer epoch is one that processes may join."""
        return self.shared_epoch == self.writer_epoch != 0

    def put_id_of(self, entry: int) -> str | None:
        """Return the put id of a WAL entry that was compacted; None if it is no longer recorded."""
        place = entry - self.wal_id_last_compacted - 1 + len(self.wal_put_ids)
        return self.wal_put_ids[place] if 0 <= place < len(self.wal_put_ids) else None

    def checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Return a checkpoint by id or by name."""
        for checkpoint in self.checkpoints:
            if checkpoint_id in (checkpoint.id, checkpoint.name):
                return checkpoint
        raise CheckpointGoneError(checkpoint_id)

    def sst_ids(self) -> frozenset[int]:
        """Return the ids of all SSTs in use."""
        return frozenset(sst.id for run in self.runs for sst in run.ssts)

    # Changes. Each is applied to the newest manifest.

    def with_writer(self, put_id: str, parallel_writes: int, checkpoint: Checkpoint) -> "StoreManifest":
        """Claim the next writer epoch."""
        return replace(
            self,
            put_id=put_id,
            writer_epoch=self.writer_epoch + 1,
            max_parallel_writes=max(self.max_parallel_writes, parallel_writes),
            checkpoints=(*self.checkpoints, checkpoint),
        )

    def with_shared(self, put_id: str, epoch: int) -> "StoreManifest":
        """Let other processes join a writer epoch whose fences stand; the same value if they may already."""
        if self.writer_epoch != epoch:
            raise FencedError("writer", epoch, self.writer_epoch)
        return self if self.shared_epoch == epoch else replace(self, put_id=put_id, shared_epoch=epoch)

    def with_intentions(self, put_id: str) -> "StoreManifest":
        """Say that there may be intentions and their results; the same value if it says so already."""
        return self if self.has_intentions else replace(self, put_id=put_id, has_intentions=True)

    def with_compactor(self, put_id: str) -> "StoreManifest":
        """Claim the next compactor epoch. SSTs of earlier epochs that are not in use are garbage from here on."""
        epoch = self.compactor_epoch + 1
        return replace(self, put_id=put_id, compactor_epoch=epoch, sst_id_last=epoch * SSTS_PER_EPOCH)

    def with_wal_compacted(
        self,
        put_id: str,
        epoch: int,
        after: int,
        put_ids: tuple[str, ...],
        row_seq: int,
        run: SortedRun | None,
        sst_id_last: int,
    ) -> "StoreManifest":
        """Put the WAL entries after `after`, one for each put id, into the levels; `run` None: they had no rows."""
        self._require_compactor(epoch)
        end = after + len(put_ids)
        if self.wal_id_last_compacted != after:
            raise InvariantError(
                "one compactor at a time", f"compacted up to {self.wal_id_last_compacted}, not {after}"
            )
        return replace(
            self,
            put_id=put_id,
            wal_id_last_compacted=end,
            wal_id_last_seen=max(self.wal_id_last_seen, end),
            row_seq_last_compacted=max(self.row_seq_last_compacted, row_seq),
            runs=self.runs if run is None else (run, *self.runs),
            sst_id_last=sst_id_last,
            wal_put_ids=(*self.wal_put_ids, *put_ids)[-PUT_IDS_KEPT:],
        )

    def with_merged(
        self, put_id: str, epoch: int, merged: tuple[SortedRun, ...], run: SortedRun | None, sst_id_last: int
    ) -> "StoreManifest":
        """Put `run` in the place of the neighbouring runs `merged`; None if nothing is left of them."""
        self._require_compactor(epoch)
        if not merged or merged[0] not in self.runs:
            raise InvariantError("one compactor at a time", "the runs that were merged no longer exist")
        place = self.runs.index(merged[0])
        if self.runs[place : place + len(merged)] != merged:
            raise InvariantError("one compactor at a time", "the runs that were merged are not neighbours any more")
        middle = () if run is None else (run,)
        runs = self.runs[:place] + middle + self.runs[place + len(merged) :]
        return replace(self, put_id=put_id, runs=runs, sst_id_last=sst_id_last)

    def with_checkpoint(self, put_id: str, checkpoint: Checkpoint, wal_id_last_seen: int) -> "StoreManifest":
        """Add a checkpoint of a manifest that is active: the one being written, or one that a checkpoint holds."""
        seen = max(self.wal_id_last_seen, wal_id_last_seen)
        return replace(self, put_id=put_id, checkpoints=(*self.checkpoints, checkpoint), wal_id_last_seen=seen)

    def with_checkpoint_expiry(self, put_id: str, checkpoint_id: str, expire_unix_s: int) -> "StoreManifest":
        """Change when a checkpoint expires. `CheckpointGoneError` if a garbage collector has removed it."""
        kept = self.checkpoint(checkpoint_id)
        others = tuple(checkpoint for checkpoint in self.checkpoints if checkpoint is not kept)
        return replace(self, put_id=put_id, checkpoints=(*others, replace(kept, expire_unix_s=expire_unix_s)))

    def without_checkpoints(self, put_id: str, checkpoint_ids: frozenset[str]) -> "StoreManifest":
        """Remove checkpoints; the same value if there is none of them."""
        kept = tuple(checkpoint for checkpoint in self.checkpoints if checkpoint.id not in checkpoint_ids)
        return self if kept == self.checkpoints else replace(self, put_id=put_id, checkpoints=kept)

    def without_expired(self, put_id: str, now_unix_s: int) -> "StoreManifest":
        """Remove expired checkpoints; the same value if there is none."""
        expired = frozenset(checkpoint.id for checkpoint in self.checkpoints if checkpoint.is_expired(now_unix_s))
        return self.without_checkpoints(put_id, expired)

    def without_parents(self, put_id: str, parents: tuple[Parent, ...]) -> "StoreManifest":
        """Forget parents whose files are not used any more; the same value if there is none of them."""
        kept = tuple(parent for parent in self.parents if parent not in parents)
        return self if kept == self.parents else replace(self, put_id=put_id, parents=kept)

    def _require_compactor(self, epoch: int) -> None:
        if self.compactor_epoch != epoch:
            raise FencedError("compactor", epoch, self.compactor_epoch)
