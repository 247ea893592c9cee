"""How long superseded manifests stay readable: counted from the moment that a newer manifest replaced them."""

from endive.drivers.blocking import BlockingDriver
from endive.kv.log.epochs import open_shared
from endive.kv.maintenance.compactor import claim_compactor
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.objects import MemoryStore

HOUR_MS = 3_600_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def test_retention_is_counted_from_the_moment_a_manifest_was_superseded() -> None:
    clock = Clock()
    driver = BlockingDriver(MemoryStore(clock), clock=clock)
    driver.run(open_shared())
    old = max(info.path for info in driver.objects.list("manifest/"))
    clock.now_ms += 100 * HOUR_MS  # the manifest was current all the time
    driver.run(claim_compactor())
    clock.now_ms += HOUR_MS

    driver.run(collect_garbage(retention_ms=2 * HOUR_MS))
    assert driver.objects.get(old) is not None

    clock.now_ms += 2 * HOUR_MS
    driver.run(collect_garbage(retention_ms=2 * HOUR_MS))
    assert driver.objects.get(old) is None
