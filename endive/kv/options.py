"""What can be set when a store is opened, with reasons for the defaults."""

from dataclasses import dataclass

from endive.kv.maintenance.garbage_collector import RETENTION_MS
from endive.kv.sst.cache import CACHE_BYTES


@dataclass(frozen=True)
class StoreOptions:
    """How a writer behaves."""

    flush_interval_ms: float = 100.0
    """Rows that nobody waits for become durable after this. A put that waits is never delayed by it."""
    flush_bytes: int = 4 * 1024 * 1024
    """...or when so many bytes wait."""
    max_parallel_writes: int = 1
    """WAL writes under way at the same time. They hide the latency of a remote store; each costs a fence on opening."""
    unflushed_bytes_max: int = 64 * 1024 * 1024
    """Puts wait while more than this is not durable."""
    uncompacted_bytes_max: int = 256 * 1024 * 1024
    """Puts wait while more than this is durable but not in the levels: it is in memory, and replayed on opening."""
    memtable_bytes: int = 8 * 1024 * 1024
    """Memory for durable rows is let go in pieces of this size."""
    compact_bytes: int = 32 * 1024 * 1024
    """The embedded compactor starts when so much is not in the levels."""
    compact_here: bool = True
    """Run compactor and collector inside this process. False: somebody else does, such as `endive kv compact`."""
    poll_interval_ms: float = 1000.0
    """How often to look for a newer manifest."""
    collect_interval_ms: float = 60_000.0
    retention_ms: int = RETENTION_MS
    cache_bytes: int = CACHE_BYTES


@dataclass(frozen=True)
class SharedOptions:
    """How a member of a shared store behaves."""

    exclusive: bool = False
    """Keep other processes from writing: a commit is one request then, not two. One that writes all the same has the
    store shared, until nobody else has written for a while; each change costs half a dozen requests."""
    retake_ms: float = 10_000.0
    """How long that while is."""
    group_works_max: int = 1024
    """Works that share one WAL object. The others wait for the next."""
    linger_max_ms: float = 50.0
    """How long at most a group may wait for those who were answered last, so that all share the next request."""
    compact_slots: int = 256
    """The embedded compactor starts when so many slots are not in the levels; each is a request for who opens."""
    compact_bytes: int = 32 * 1024 * 1024
    """...or so many bytes. Both times a number between 1 and 2 that each process draws for itself."""
    compact_here: bool = True
    """Run compactor and collector inside this process. False: another member or `endive kv compact` does."""
    poll_interval_ms: float = 1000.0
    """How often to see whether there is something to compact or to collect. It costs no request, but for an exclusive
    writer: it looks for what others did."""
    collect_interval_ms: float = 60_000.0
    """How often to collect, times the same number."""
    retention_ms: int = RETENTION_MS
    idle_max_ms: float = 60_000.0
    """After so long without news a commit looks at the log first, instead of finding out by losing."""
    cache_bytes: int = CACHE_BYTES
