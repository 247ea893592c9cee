"""Reading ahead when a store is opened: indexes of its SSTs, and rows that are needed in any case."""

from collections.abc import Sequence

from endive.errors import MissingObjectError
from endive.kv.manifest import SortedRun
from endive.kv.sst.lookup import find_many
from endive.kv.sst.reading import Fetched, TableCache, fetch_indexes
from endive.protocol.requests import Steps

SSTS_MAX = 32
"""SSTs whose indexes are read: one request each, side by side."""
INDEX_BYTES_MAX = 4 * 1024 * 1024


def warm(runs: tuple[SortedRun, ...], keys: Sequence[bytes], cache: TableCache) -> Steps[None]:
    """Fill a cache with the indexes of all SSTs, if they are few and small, and with the blocks of some keys."""
    ssts = [sst for run in runs for sst in run.ssts]
    try:
        if len(ssts) <= SSTS_MAX and sum(sst.size_bytes - sst.index_offset for sst in ssts) <= INDEX_BYTES_MAX:
            yield from fetch_indexes(ssts, Fetched(cache))
        yield from find_many(runs, keys, cache)
    except MissingObjectError:
        return  # superseded meanwhile
