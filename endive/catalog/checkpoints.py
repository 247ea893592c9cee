"""Checkpoints of a whole catalog: create, list, delete, open, and restore all tables to one.

A checkpoint is a consistent, named point of all tables that may expire. The store's checkpoint keeps the rows of that
moment; the row of the catalog's checkpoint keeps the files (`endive.catalog.operations.checkpoint_rows`). Both are
needed: without the row, no process opens the store's checkpoint, and `clean_up` deletes it.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from endive.catalog.commit.publisher import Publisher
from endive.catalog.maintenance.clean_up import delete_pending
from endive.catalog.maintenance.purge import clear_if_dropped
from endive.catalog.model.checkpoint_records import NEVER, CheckpointRecord
from endive.catalog.model.keys import checkpoint_key
from endive.catalog.model.names import text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations import checkpoint_rows as rows
from endive.catalog.operations.restore import CatalogState, NotCleared, RestoreReport, apply_restore, load_state, plan
from endive.catalog.operations.retries import retrying
from endive.catalog.operations.stored_tables import raise_format
from endive.catalog.operations.table_rows import all_tables
from endive.errors import AttemptsExhaustedError, ConfigurationError, EndiveError, NotInCatalogError
from endive.protocol.requests import Steps
from endive.wording import utc

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 10
NAME_BYTES_MAX = 200
PREFIX = "catalog-"
"""Names of the store's checkpoints that belong to a catalog's begin so."""
STORE_SLACK_S = 3600
"""How much longer the store's checkpoint lasts than the catalog's: clocks differ, and the row decides."""
UNDO_MS = 7 * 86_400_000
"""How long the checkpoint lasts that a restore makes of the state before it."""


class Checkpoints:
    """The checkpoints of a catalog."""

    def __init__(
        self,
        store: TransactionalStore,
        publisher: Publisher,
        clock: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.store = store
        self._publisher = publisher
        self._clock = clock
        self.new_id = new_id

    def create(self, name: str, lifetime_ms: int = NEVER, clone_url: str = "") -> CheckpointRecord:
        """Create a checkpoint of the newest state; `lifetime_ms` 0: it never expires.

        Maintenance that deletes files abandons a checkpoint in progress; then it is created again.
        """
        _check_name(name)
        for _ in range(ATTEMPTS_MAX):
            now_ms = self._clock()
            expire_ms = now_ms + lifetime_ms if lifetime_ms else NEVER
            begun = CheckpointRecord(name, self.new_id(), now_ms, expire_ms, clone_url=clone_url)
            retrying(lambda begun=begun, now_ms=now_ms: self._begin(begun, now_ms))  # type: ignore[misc]
            lifetime_s = -(-lifetime_ms // 1000) + STORE_SLACK_S if lifetime_ms and not clone_url else 0
            pinned = self.store.checkpoint(lifetime_s, f"{PREFIX}{begun.id}")
            if retrying(lambda begun=begun, pinned=pinned: self._finish(begun, pinned.id)):  # type: ignore[misc]
                return replace(begun, store_checkpoint=pinned.id)
            self.store.delete_checkpoint(pinned.id)
        raise AttemptsExhaustedError(name, ATTEMPTS_MAX)

    def _begin(self, record: CheckpointRecord, now_ms: int) -> None:
        self.store.transact(lambda tx: rows.begin_checkpoint(tx, record, now_ms))

    def _finish(self, record: CheckpointRecord, store_checkpoint: str) -> bool:
        return self.store.transact(lambda tx: rows.finish_checkpoint(tx, record, store_checkpoint))

    def share(self, name: str, new_name: str, lifetime_ms: int, clone_url: str) -> CheckpointRecord:
        """Create a checkpoint of the state of another one, for a clone."""
        now_ms = self._clock()
        record_id = self.new_id()

        def put(tx: StoreTransaction) -> Steps[CheckpointRecord]:
            source = yield from rows.require_checkpoint(tx, name, now_ms)
            yield from raise_format(tx)
            expire_ms, pinned = now_ms + lifetime_ms, source.store_checkpoint
            shared = CheckpointRecord(new_name, record_id, now_ms, expire_ms, pinned, clone_url)
            tx.put(checkpoint_key(new_name), shared.encoded())
            return shared

        shared = retrying(lambda: self.store.transact(put))
        self.store.refresh_checkpoint(shared.store_checkpoint, 0)
        return shared

    def keep(self, record: CheckpointRecord) -> None:
        """Let a checkpoint never expire."""
        now_ms = self._clock()

        def put(tx: StoreTransaction) -> Steps[None]:
            found = yield from rows.require_checkpoint(tx, record.name, now_ms)
            if found.id != record.id:
                raise NotInCatalogError("Checkpoint", record.name, "it has expired, and another has its name now")
            if found.expire_unix_ms != NEVER:
                tx.put(checkpoint_key(found.name), replace(found, expire_unix_ms=NEVER).encoded())

        retrying(lambda: self.store.transact(put))

    def list(self) -> list[CheckpointRecord]:
        """Return the checkpoints that can be opened, oldest first."""
        now_ms = self._clock()
        found = self.store.read(rows.all_checkpoints)
        usable = [one for one in found if one.is_finished and not one.is_expired(now_ms)]
        return sorted(usable, key=lambda one: (one.created_unix_ms, one.name))

    def delete(self, name: str, force: bool = False) -> None:
        """Delete a checkpoint. One that a clone needs only with `force`: the clone's tables lose their files then."""
        found = self.store.read(lambda tx: rows.find_checkpoint(tx, name))
        if found is None or not found.is_finished:
            raise NotInCatalogError("Checkpoint", name)
        if found.clone_url and not force:
            problem = f"the catalog {found.clone_url} was cloned from it and needs its files; delete that catalog first"
            raise ConfigurationError(name, [f"{problem}, then use force"])
        retrying(lambda: self.store.transact(lambda tx: rows.delete_checkpoint(tx, name, found.id)))
        self._delete_unused()

    def clean_up(self) -> int:
        """Delete expired and abandoned checkpoints; return how many of the store's were deleted."""
        rows.holding(self.store, rows.nothing, self._clock())
        return self._delete_unused()

    def _delete_unused(self) -> int:
        """Delete the store's checkpoints that no row refers to, and never will: a row is put first."""
        pinned = [one for one in self.store.checkpoints() if one.name.startswith(PREFIX)]
        known = self.store.read(rows.all_checkpoints)
        used, begun = {one.store_checkpoint for one in known}, {f"{PREFIX}{one.id}" for one in known}
        unused = [one for one in pinned if one.id not in used and one.name not in begun]
        for one in unused:
            self.store.delete_checkpoint(one.id)
        return len(unused)

    def find(self, name: str) -> CheckpointRecord:
        """Return a checkpoint that can be opened."""
        now_ms = self._clock()
        return self.store.read(lambda tx: rows.require_checkpoint(tx, name, now_ms))

    # Restore.

    def restore(self, name: str, dry_run: bool = False) -> RestoreReport:
        """Make all tables as they were at a checkpoint, in one transaction; `dry_run`: only report what would change.

        The state before is kept as a checkpoint for a week: restoring that one undoes it.
        """
        record = self.find(name)
        with closing(self.store.at(record.store_checkpoint)) as past:
            state = past.read(load_state)
        if dry_run:
            return self.store.read(lambda tx: plan(tx, state, record, self._clock())).report
        undo = self.create(f"before-restore-{utc(self._clock()).replace(' ', 'T')}-{self.new_id()[:4]}", UNDO_MS)
        report = self._restore(state, record)
        for changed in report.written:
            self._publish(changed)
        return replace(report, undo=undo.name)

    def _restore(self, state: CatalogState, record: CheckpointRecord) -> RestoreReport:
        for _ in range(ATTEMPTS_MAX):
            for uuid in state.tables:
                clear_if_dropped(self.store, uuid)
            for now in self.store.read(all_tables):
                if now.pending_deletions:
                    delete_pending(self.store, now.identifier)
            now_ms = self._clock()
            done = retrying(
                lambda now_ms=now_ms: self.store.transact(lambda tx: apply_restore(tx, state, record, now_ms))  # type: ignore[misc]
            )
            if not isinstance(done, NotCleared):
                return done
        raise AttemptsExhaustedError(record.name, ATTEMPTS_MAX)

    def _publish(self, identifier: tuple[str, ...]) -> None:
        """Write a restored table's metadata file; the next load writes one that cannot be written now."""
        try:
            self._publisher.publish(identifier)
        except (EndiveError, OSError):
            logger.warning("the metadata file of %s is behind its records", text_of(identifier), exc_info=True)


def _check_name(name: str) -> None:
    if not name.strip() or len(name.encode(errors="replace")) > NAME_BYTES_MAX or not name.isprintable():
        raise ConfigurationError(
            "the name of a checkpoint", [f"{name!r}: it needs 1 to {NAME_BYTES_MAX} bytes of printable text"]
        )
