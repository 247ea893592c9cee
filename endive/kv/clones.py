"""Clones: a new store that starts from a checkpoint of another and shares its files.

A clone is an ordinary store, with its own WAL, manifests and epochs, that can be read and written. Only the SST files
that it starts with stay where they are, in the *source*: the clone's manifest names the source as a *parent*, and every
SST whose id is not above the parent's `sst_id_last` is read from there. SSTs that the clone writes have higher ids,
because its compactor epochs go on from the source's. Rows of the source's WAL become an SST of the clone, so it never
needs the source's WAL.

**Guarantees.** The source keeps a checkpoint, named `endive:clone URL`, which never expires, for as long as any
manifest of the clone needs a file of the source. Its garbage collector honours it as it does every checkpoint. When
compactions of the clone have rewritten all of the source's files, the clone's garbage collector deletes the
checkpoint, then the parent from the clone's manifest. Neither store ever deletes a file of the other.

**Every step may be the last.**

1. Create the checkpoint in the source, for an hour. A crash leaves a checkpoint that expires.
2. Write the rows of the source's WAL as an SST into the clone. A crash leaves a file that is never read.
3. Let the checkpoint never expire, *then* create the clone's first manifest. A crash in between leaves a checkpoint
   that keeps files of the source until an operator deletes it. The other order could leave a clone without files.

A clone of a clone has a checkpoint in each store whose files it reads, made from the checkpoint that its source has
there (`create_checkpoint(source=…)`): the source may let its own go at any time.

**Limits.** The source must stay where it is, and be reachable in the same way as the clone: the same cloud
and credentials. Stores whose creates a record store decides cannot be cloned.
"""

from dataclasses import replace

from endive.drivers.blocking import BlockingDriver
from endive.errors import ConfigurationError, OutcomeUnknownError
from endive.kv.maintenance.compactor import SST_BYTES, write_ssts
from endive.kv.maintenance.garbage_collector import release_parents
from endive.kv.manifest import RESERVED, SSTS_PER_EPOCH, Parent, SortedRun, SstInfo, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.merge import cut, merge
from endive.kv.views import View, add_checkpoint, refresh_checkpoint, view_at
from endive.objects.api import HasSiblings, ObjectStore
from endive.protocol.requests import NewId, Steps, ask, elsewhere
from endive.protocol.sequenced import Numbered, newest_for_certain, propose

CLONE = f"{RESERVED}clone "
"""Begin of the name of a checkpoint that a clone needs; the clone's URL follows."""
LIFETIME_S = 3600
"""Of the checkpoint while the clone is being made."""
EXISTS = "there is a store already; clone into a place without one"


def clone_store(own_url: str, source_url: str, checkpoint: str | None = None) -> Steps[Numbered[StoreManifest]]:
    """Make a clone here of the store at another URL: of its present state, or of a checkpoint, by id or name.

    Return the clone's first manifest. `ConfigurationError`: there is a store here. `CheckpointGoneError`: the source
    has no such checkpoint. `OutcomeUnknownError`: the clone may exist or not.
    """
    existing = yield from newest_for_certain(MANIFESTS)
    if existing is not None:
        raise ConfigurationError(own_url, [EXISTS])
    name = f"{CLONE}{own_url}"
    held = yield from elsewhere(source_url, add_checkpoint(LIFETIME_S, name, checkpoint))
    view: View = yield from elsewhere(source_url, view_at(held.id))
    parents: tuple[Parent, ...] = ()
    for number in range(len(view.manifest.value.parents)):
        parent = view.manifest.value.parents[number]
        again = yield from elsewhere(parent.url, add_checkpoint(LIFETIME_S, name, parent.checkpoint_id))
        parents = (*parents, replace(parent, checkpoint_id=again.id))
    parents = (*parents, Parent(source_url, held.id, view.manifest.value.sst_id_last))
    first = yield from _first_manifest(view, parents)
    for number in range(len(parents)):
        yield from elsewhere(parents[number].url, refresh_checkpoint(parents[number].checkpoint_id, 0))
    try:
        created = yield from propose(MANIFESTS, None, first)
    except OutcomeUnknownError:
        created = yield from newest_for_certain(MANIFESTS)
        if created is None:
            raise
    if created is None or created.value.put_id != first.put_id:
        yield from release_parents(parents)
        raise ConfigurationError(own_url, [EXISTS])
    return created


def _first_manifest(view: View, parents: tuple[Parent, ...]) -> Steps[StoreManifest]:
    """Write the rows of the source's WAL; return the manifest of a store that holds what the view does."""
    before = view.manifest.value
    epoch = before.compactor_epoch + 1
    rows = merge((entry.rows for entry in view.entries), keep_tombstones=bool(before.runs))
    written = yield from write_ssts(cut(rows, SST_BYTES), epoch, epoch * SSTS_PER_EPOCH)
    put_id = yield from ask(NewId())
    row_seq = max([before.row_seq_last_compacted, *(seq for entry in view.entries for seq in entry.rows.seqs)])
    runs = tuple(SortedRun(run.level, tuple(_of_parent(sst, parents) for sst in run.ssts)) for run in before.runs)
    return StoreManifest(
        put_id,
        compactor_epoch=epoch,
        wal_id_last_compacted=view.wal_end,  # WAL entries are numbered on: rows of the store's own name positions
        wal_id_last_seen=view.wal_end,
        row_seq_last_compacted=row_seq,
        sst_id_last=written[-1].id if written else epoch * SSTS_PER_EPOCH,
        runs=(SortedRun(0, written), *runs) if written else runs,
        parents=parents,
    )


def _of_parent(sst: SstInfo, parents: tuple[Parent, ...]) -> SstInfo:
    return sst._replace(store=next(parent.url for parent in parents if sst.id <= parent.sst_id_last))


def clone(source: ObjectStore, destination: ObjectStore, checkpoint: str | None = None) -> StoreManifest:
    """Make a clone of the store in `source` in `destination`, which must hold no store; return its first manifest.

    The clone holds the rows of the source's present state, or of a checkpoint, by id or name. Nothing is copied but the
    rows of the source's WAL. Open it with `Store(destination)` or `Reader(destination)` like any other store: both can
    be written independently, and maintenance of either never deletes what the other needs.

    The contract: the source must stay at its URL while the clone shares files with it. It keeps a checkpoint, named
    `endive:clone URL`, for the clone, which the clone's garbage collector deletes when compactions have rewritten all
    shared files: `Store(destination).compact(everything=True)`, then `collect()` after the retention, ends the sharing.
    A clone that is thrown away must be followed by deleting that checkpoint in the source.

    Safe to be interrupted at any point, and to be repeated if there is no store in `destination` afterwards.
    `ConfigurationError`: there is a store already, or a record store decides creates, or the two are of different
    kinds. `CheckpointGoneError`: the source has no such checkpoint.
    """
    for objects in (source, destination):
        if not isinstance(objects, HasSiblings):
            raise ConfigurationError(objects.url, ["stores of this kind cannot be cloned"])
    driver = BlockingDriver(destination)
    try:
        return driver.run(clone_store(destination.url, source.url, checkpoint)).value
    finally:
        driver.close()
