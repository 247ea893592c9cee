"""Options of a store that is opened for writing, with reasons for the defaults."""

from dataclasses import dataclass

from endive.kv.maintenance.claim import LEASE_S
from endive.kv.maintenance.garbage_collector import RETENTION_MS
from endive.kv.sst.cache import CACHE_BYTES


@dataclass(frozen=True)
class StoreOptions:
    """Options of a writer. Times are in milliseconds."""

    reopen: bool = False
    """What an exclusive writer does when another writer fences it, or a write fails. False: it stops, and every later
    call raises the error; it claims its epoch when it opens. True: it goes on, as a shared writer always does, and
    joins or claims an epoch with its next commit; it claims none before its first."""
    retake_ms: float = 10_000.0
    """An exclusive writer that has to share the store claims it again when no other has written for so long. Each
    change costs half a dozen requests."""
    await_exclusive: bool = False
    """What a shared writer does that meets an exclusive one. False: it claims the store, and both share it. True: it
    announces its commit first, and claims the store only if the other has not carried it out for 2.5 seconds."""
    max_parallel_writes: int = 1
    """WAL entries that an exclusive writer has in flight. More hide the latency of a remote store; each costs a fence
    when an epoch is claimed."""
    batch_functions_max: int = 1024
    """Transaction functions that share one WAL entry. The others wait for the next."""
    linger_max_ms: float = 50.0
    """How long at most a batch may wait for callers that were answered last, so that all share the next entry."""
    flush_interval_ms: float = 100.0
    """Rows that no thread waits for become durable after this. A put that waits is never delayed by it."""
    flush_bytes: int = 4 * 1024 * 1024
    """...or when so many bytes wait."""
    skip_memtable_bytes: int = 1024 * 1024
    """A write of so many bytes is not held back for others: what waits is committed with it at once."""
    unflushed_bytes_max: int = 64 * 1024 * 1024
    """Writes wait while more than this is not durable."""
    uncompacted_bytes_max: int = 256 * 1024 * 1024
    """Writes wait while more than this is durable but not in the levels: it is in memory, and replayed on opening."""
    uncompacted_entries_max: int = 4096
    """...or more WAL entries than this: opening reads them all."""
    compact_entries: int = 64
    """The WAL is compacted when so many entries are not in the levels. All of them are read on opening, side by side,
    and a compaction costs about as many requests as it spares the next few openings."""
    compact_bytes: int = 32 * 1024 * 1024
    """...or so many bytes."""
    compact_here: bool = True
    """Compact and collect garbage in this process: in the background, and before it ends if there is something to do.
    False: another process does, as `endive kv compact`."""
    maintenance_lease_s: int = LEASE_S
    """How long other processes leave maintenance to this one after it has claimed it."""
    closing_ms: float = 10_000.0
    """Before it ends, a process starts no pass of maintenance later than this. A commit is acknowledged before."""
    poll_interval_ms: float = 1000.0
    """How often to check whether there is something to compact or to delete. An exclusive writer also looks for a newer
    manifest, a request that shared writers make with each commit."""
    collect_interval_ms: float = 60_000.0
    """How often to run the garbage collector."""
    retention_ms: int = RETENTION_MS
    """How long a superseded manifest and its files stay without a checkpoint."""
    idle_max_ms: float = 60_000.0
    """After so long without a commit or a refresh, a shared writer refreshes before it commits."""
    warm_keys: tuple[bytes, ...] = ()
    """Keys that are read in any case after opening. They, and the indexes of SSTs if they are few, are read while the
    store is opened, in the same round trips."""
    cache_bytes: int = CACHE_BYTES
    """Memory for blocks of SSTs."""
