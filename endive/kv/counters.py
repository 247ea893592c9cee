"""Counters and sizes that every open store has, by name."""

from endive.drivers.blocking import BlockingDriver
from endive.kv.manifest import StoreManifest
from endive.kv.sst.cache import BlockCache


def counters(manifest: StoreManifest, cache: BlockCache, driver: BlockingDriver) -> dict[str, int]:
    """Return what the levels hold, how the cache does, and the requests by kind."""
    held = {
        "runs": len(manifest.runs),
        "ssts": len(manifest.sst_ids()),
        "level_bytes": sum(run.size_bytes for run in manifest.runs),
        "cache_bytes": cache.bytes_held,
        "cache_hits": cache.hits,
        "cache_misses": cache.misses,
    }
    return held | {f"requests_{kind}": count for kind, count in sorted(driver.requests.by_kind.items())}
