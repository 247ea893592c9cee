"""The compactor: WAL to level 0, then levels. One at a time, by an epoch of its own.

**Levels.** Level 0 holds runs made from the WAL. When a level has `FANOUT` runs, they are merged into one run of the
next level. Each row is written once for each level, about log4(size) times, which is what counts where every byte
written is a request to a remote store; in exchange a key may be in up to three runs a level, which filters and caches
make cheap. (Levelled compaction writes a row about ten times for each level.)

**What can race.** A newer compactor: every change of the manifest requires that the epoch is still ours, in the
manifest that is being replaced. Writers and readers change the same manifest: the change is applied to the newest
one. The garbage collector: it may delete only SSTs that no manifest will name; SST ids ascend in the order in which
they are published, and the manifest says up to which id they have been (`sst_id_last`). WAL entries that a garbage
collector has deleted: only entries that follow the last compacted one are read, and those are not deleted.

**Void entries** (`endive.kv.log.wal`) are left out. Whether an entry is void depends on the entries before it, and a
reader reads only those behind the last compacted one. So a pass ends at an entry behind which none is void because of
an earlier one: an entry with rows that count, whose writer had its run of fences, or a whole run of fences.

**Tombstones** are dropped when nothing older is left that they could hide: the merge includes the last run.

**Memory.** A pass over the WAL takes in about `WAL_BYTES`. A merge of levels works on one range of keys at a time; each
holds about `RANGE_BYTES` before compression.
"""

from dataclasses import dataclass
from functools import partial

from endive.errors import FencedError, MissingObjectError, OutcomeUnknownError
from endive.kv.log.opening import require_newest
from endive.kv.log.wal import NO_ROWS, WAL, is_void, paths_between
from endive.kv.manifest import SortedRun, SstInfo, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import BLOCK_BYTES, Footer, Rows, decode_footer, decode_sst, encode_sst
from endive.kv.sst.merge import cut, key_ranges, merge
from endive.kv.sst.reading import Fetched, NoCache, fetch_indexes, load_ranges, sst_path
from endive.protocol.fencing import contiguous_end
from endive.protocol.requests import GetAll, NewId, Steps, ask, create
from endive.protocol.sequenced import ATTEMPTS_MAX, Numbered, update

FANOUT = 4
RANGE_BYTES = 32 * 1024 * 1024
SST_BYTES = 32 * 1024 * 1024
WAL_BYTES = 64 * 1024 * 1024
"""Keys and values that one pass takes in, before compression."""
ENTRIES_AT_ONCE = 32
ROLE = "compactor"


@dataclass(frozen=True)
class Compaction:
    """Result of one pass."""

    manifest: Numbered[StoreManifest]
    entries: int = 0
    """WAL entries that went into the levels."""
    runs: int = 0
    """Runs that were merged into one."""
    rows: int = 0
    """Rows written."""


def compact_wal(epoch: int) -> Steps[Compaction | None]:
    """Merge the WAL, up to its first gap or as much as fits into memory, into level 0. None: there is nothing to do."""
    base = yield from _owned(epoch)
    after = base.value.wal_id_last_compacted
    last = yield from contiguous_end(WAL, after)
    if last == after:
        return None
    entries = yield from _entries(after, last)
    if entries is None:  # entries behind the last compacted one vanish only if another compactor has compacted them
        now = yield from require_newest()
        raise _lost_or_fenced(epoch, now, WAL.path_of(after + 1))
    if not entries[-1][1].keys:
        # The writers of these entries may have claimed their epochs, with more parallel writes, since `base` was read.
        now = yield from require_newest()
        entries = entries[: safe_end(entries, now.value.max_parallel_writes)]
    if not entries:
        return None
    rows = merge((held for _, held in entries), keep_tombstones=bool(base.value.runs))
    row_seq = max(footer.seq_last for footer, _ in entries)
    ssts = yield from write_ssts(cut(rows, SST_BYTES), epoch, base.value.sst_id_last)
    run = SortedRun(0, ssts) if ssts else None
    sst_last = ssts[-1].id if ssts else base.value.sst_id_last
    put_id = yield from ask(NewId())
    put_ids = tuple(footer.put_id for footer, _ in entries)
    change = partial(
        _with_wal, put_id=put_id, epoch=epoch, after=after, put_ids=put_ids, row_seq=row_seq, run=run, last=sst_last
    )
    manifest = yield from update(MANIFESTS, change)
    return Compaction(manifest, entries=len(entries), rows=len(rows.keys))


def _entries(after: int, last: int) -> Steps[list[tuple[Footer, Rows]] | None]:
    """Return the entries after `after`, up to `last` or until there is enough; None if one no longer exists."""
    entries: list[tuple[Footer, Rows]] = []
    size = epoch = 0
    for start in range(after, last, ENTRIES_AT_ONCE):
        if size >= WAL_BYTES and entries[-1][1].keys:
            break
        paths = paths_between(start, min(start + ENTRIES_AT_ONCE, last))
        bodies = yield from ask(GetAll(paths))
        if None in bodies:
            return None
        for path, body in zip(paths, bodies, strict=True):
            footer, rows = decode_sst(path, body or b"")
            rows = NO_ROWS if is_void(footer, epoch) else rows
            epoch = max(epoch, footer.epoch)
            size += sum(map(len, rows.keys)) + sum(len(value or b"") for value in rows.values)
            entries.append((footer, rows))
    return entries


def safe_end(entries: list[tuple[Footer, Rows]], parallel_writes: int) -> int:
    """Return how many entries a pass may take, so that no entry behind them is void because of one of them."""
    for end in range(len(entries), 0, -1):
        if entries[end - 1][1].keys:
            return end
        run = [footer for footer, _ in entries[max(end - parallel_writes, 0) : end]]
        if len(run) == parallel_writes and all(each.is_fence and each.epoch == run[0].epoch for each in run):
            return end
    return 0


def _with_wal(
    base: Numbered[StoreManifest],
    put_id: str,
    epoch: int,
    after: int,
    put_ids: tuple[str, ...],
    row_seq: int,
    run: SortedRun | None,
    last: int,
) -> StoreManifest:
    return base.value.with_wal_compacted(put_id, epoch, after, put_ids, row_seq, run, last)


def compact_levels(epoch: int, everything: bool = False, bytes_max: int | None = None) -> Steps[Compaction | None]:
    """Merge the runs of a level that has enough of them; `everything`: all runs of all levels. None: nothing to do.

    `bytes_max`: leave larger merges to others.
    """
    base = yield from _owned(epoch)
    merged = base.value.runs if everything else full_level(base.value)
    if not merged or (everything and len(merged) == 1):
        return None
    if bytes_max is not None and sum(run.size_bytes for run in merged) > bytes_max:
        return None
    keep_tombstones = merged[-1] != base.value.runs[-1]
    try:
        ssts = yield from _merge(merged, epoch, base.value.sst_id_last, keep_tombstones)
    except MissingObjectError as error:
        now = yield from require_newest()
        raise _lost_or_fenced(epoch, now, error.path) from error
    run = SortedRun(merged[-1].level + 1, ssts) if ssts else None
    last = ssts[-1].id if ssts else base.value.sst_id_last
    put_id = yield from ask(NewId())
    change = partial(_with_merged, put_id=put_id, epoch=epoch, merged=merged, run=run, last=last)
    manifest = yield from update(MANIFESTS, change)
    return Compaction(manifest, runs=len(merged), rows=sum(sst.rows for sst in ssts))


def _merge(runs: tuple[SortedRun, ...], epoch: int, last_id: int, keep_tombstones: bool) -> Steps[tuple[SstInfo, ...]]:
    """Write the rows of runs as new SSTs, one range of keys after the other."""
    files = tuple(sst for run in reversed(runs) for sst in run.ssts)  # oldest first
    fetched = Fetched(NoCache())
    yield from fetch_indexes(files, fetched)
    indexed = tuple((sst, fetched.indexes[sst.id]) for sst in files)
    fetched = Fetched(NoCache())  # blocks of small files are read again with their range: few, and bounded memory
    ssts: tuple[SstInfo, ...] = ()
    ranges = key_ranges([index for _, index in indexed], RANGE_BYTES, BLOCK_BYTES)
    for number in range(len(ranges)):
        sources = yield from load_ranges(indexed, ranges[number])
        rows = merge(sources, keep_tombstones)
        written = yield from write_ssts(cut(rows, SST_BYTES), epoch, ssts[-1].id if ssts else last_id)
        ssts += written
    return ssts


def _with_merged(
    base: Numbered[StoreManifest],
    put_id: str,
    epoch: int,
    merged: tuple[SortedRun, ...],
    run: SortedRun | None,
    last: int,
) -> StoreManifest:
    return base.value.with_merged(put_id, epoch, merged, run, last)


def full_level(manifest: StoreManifest) -> tuple[SortedRun, ...]:
    """Return all runs of the first level that has `FANOUT` of them; none if no level has."""
    for level in sorted({run.level for run in manifest.runs}):
        runs = tuple(run for run in manifest.runs if run.level == level)
        if len(runs) >= FANOUT:
            return runs
    return ()


def _owned(epoch: int) -> Steps[Numbered[StoreManifest]]:
    base = yield from require_newest()
    if base.value.compactor_epoch != epoch:
        raise FencedError(ROLE, epoch, base.value.compactor_epoch)
    return base


def write_ssts(pieces: list[Rows], epoch: int, last_id: int) -> Steps[tuple[SstInfo, ...]]:
    """Write SSTs with the ids after `last_id`. An id that an earlier, failed pass has used is passed over."""
    ssts: tuple[SstInfo, ...] = ()
    sst_id = last_id
    for number in range(len(pieces)):
        put_id = yield from ask(NewId())
        body = encode_sst(pieces[number], epoch, put_id)
        sst_id = yield from _create_sst(body, sst_id + 1)
        ssts = (*ssts, sst_info(sst_id, body, pieces[number]))
    return ssts


def _create_sst(body: bytes, first_id: int) -> Steps[int]:
    for sst_id in range(first_id, first_id + ATTEMPTS_MAX):
        is_ours = yield from create(sst_path(sst_id), body)
        if is_ours:
            return sst_id
    raise OutcomeUnknownError(sst_path(first_id))


def sst_info(sst_id: int, body: bytes, rows: Rows) -> SstInfo:
    """Return what the manifest says of an SST."""
    footer = decode_footer(sst_path(sst_id), body)
    return SstInfo(sst_id, len(body), footer.rows, rows.keys[0], rows.keys[-1], footer.index_offset)


def _lost_or_fenced(epoch: int, newest: Numbered[StoreManifest], path: str) -> FencedError | MissingObjectError:
    if newest.value.compactor_epoch != epoch:
        return FencedError(ROLE, epoch, newest.value.compactor_epoch)
    return MissingObjectError(path)
