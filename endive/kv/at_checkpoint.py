"""The store as it was at a checkpoint, for transaction functions that only read.

`endive.kv.Reader` gives keys and values at a checkpoint; this runs transaction functions there, as `Store.read` does.
"""

from typing import NoReturn, TypeVar

from endive.closing import Closing
from endive.drivers.blocking import BlockingDriver
from endive.errors import AtCheckpointError
from endive.kv.log.recent import Recent
from endive.kv.manifest import Checkpoint
from endive.kv.sst.cache import BlockCache
from endive.kv.transaction import Transaction, TransactionFunction, run_function
from endive.kv.views import view_at
from endive.objects.api import ObjectStore

T = TypeVar("T")

CACHE_BYTES = 16 * 1024 * 1024
"""Memory for blocks of SSTs: a checkpoint is opened to be read once."""


class StoreAtCheckpoint(Closing):
    """A store that never changes. `checkpoint`: an id or a name; `CheckpointGoneError` if there is none.

    `label`: its name in messages.
    """

    is_exclusive_elsewhere = True
    """Nothing can be written here."""

    def __init__(self, objects: ObjectStore, checkpoint: str, label: str = "") -> None:
        self.label = label or checkpoint
        self._driver = BlockingDriver(objects)
        self._cache = BlockCache(CACHE_BYTES)
        try:
            view = self._driver.run(view_at(checkpoint))
        except BaseException:
            self._driver.close()
            raise
        self._runs = view.manifest.value.runs
        recent = Recent()
        for entry in view.entries:
            if entry.rows.keys:
                recent = recent.with_entry(entry, view.manifest.value.wal_id_last_compacted)
        self._recent = recent

    def read(self, function: TransactionFunction[T]) -> T:
        """Run a function that only reads. `MissingObjectError` if the checkpoint was deleted meanwhile."""
        transaction = Transaction(self._runs, self._recent, self._cache, is_writable=False)
        outcome = self._driver.run(run_function(function, transaction))
        if outcome.error is not None:
            raise outcome.error
        result: T = outcome.value
        return result

    def read_cached(self, function: TransactionFunction[T]) -> T:
        """Run a function that only reads: the same, since nothing changes."""
        return self.read(function)

    def transact(self, function: TransactionFunction[T]) -> NoReturn:  # noqa: ARG002 - the interface of a store
        """Raise `AtCheckpointError`."""
        raise AtCheckpointError(self.label)

    def submit(self, function: TransactionFunction[T]) -> NoReturn:  # noqa: ARG002 - the interface of a store
        """Raise `AtCheckpointError`."""
        raise AtCheckpointError(self.label)

    def checkpoint(self, lifetime_s: int, name: str = "") -> NoReturn:  # noqa: ARG002 - the interface of a store
        """Raise `AtCheckpointError`."""
        raise AtCheckpointError(self.label)

    def delete_checkpoint(self, checkpoint_id: str) -> NoReturn:  # noqa: ARG002 - the interface of a store
        """Raise `AtCheckpointError`."""
        raise AtCheckpointError(self.label)

    def refresh_checkpoint(self, checkpoint_id: str, lifetime_s: int) -> NoReturn:  # noqa: ARG002 - as above
        """Raise `AtCheckpointError`."""
        raise AtCheckpointError(self.label)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return no checkpoints: none can be deleted here."""
        return ()

    def at(self, checkpoint_id: str) -> "StoreAtCheckpoint":
        """Return the same store at another checkpoint."""
        return StoreAtCheckpoint(self._driver.objects, checkpoint_id)

    def settle(self) -> tuple[str, ...]:
        """Nothing is carried out in the past."""
        return ()

    def close(self) -> None:
        """Release resources. Idempotent."""
        self._driver.close()
