"""A create was carried out unnoticed, and its entry was compacted, deleted and created again by another writer."""

from collections.abc import Callable

from endive.errors import OutcomeUnknownError
from endive.kv import Store, StoreOptions
from endive.kv.transaction import Transaction
from endive.objects import MemoryStore
from endive.protocol.requests import Steps

QUIET = StoreOptions(compact_here=False, poll_interval_ms=3_600_000, retention_ms=0)


def add_one(tx: Transaction) -> Steps[int]:
    count = int((yield from tx.get(b"count")) or b"0") + 1
    tx.put(b"count", b"%d" % count)
    return count


class Slow(MemoryStore):
    """An object store that carries out a create and answers it much later, with a time-out."""

    meanwhile: Callable[[str], None] | None = None

    def put_if_absent(self, path: str, body: bytes) -> bool:
        created = super().put_if_absent(path, body)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile(path)
            raise OutcomeUnknownError(path)
        return created


def test_a_commit_counts_once_though_a_stale_object_is_in_its_place() -> None:
    objects = Slow()
    with Store(objects, "shared", QUIET) as other, Store(objects, "shared", QUIET) as slow:

        def compacted_and_collected(path: str) -> None:
            other.transact(add_one)
            other.compact()
            other.collect()
            assert objects.get(path) is None
            other.transact(add_one)
            newest = objects.list("wal/")[-1].path
            assert objects.put_if_absent(path, objects.get(newest) or b"")  # by a writer that is as far behind

        objects.meanwhile = compacted_and_collected
        slow.transact(add_one)

        assert other.transact(add_one) == 4
