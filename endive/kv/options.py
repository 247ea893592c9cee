"""What can be set when a store is opened, with reasons for the defaults."""

from dataclasses import dataclass

from endive.kv.cache import CACHE_BYTES
from endive.kv.collector import RETENTION_MS


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
