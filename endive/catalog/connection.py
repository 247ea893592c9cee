"""From a URL to a store, shared by all catalogs of a process that use it: each opening would replay the log.

The store's objects are in `_endive/` below the URL, beside the tables. `memory://name` is one place for the lifetime of
the process. A bare `memory://` is a new place each time it is opened, under a unique name, so that experiments do not
share a catalog. Its objects are deleted with the last catalog on it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from endive.catalog.model.catalog_records import FORMAT_VERSION, PLAIN_FORMAT_VERSION, CatalogRecord
from endive.catalog.model.checkpoint_records import CheckpointRecord, CloneSource
from endive.catalog.model.keys import CATALOG, CLONING, checkpoint_key
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.retries import retrying
from endive.catalog.settings import EXCLUSIVE, RECORDS, SHARED, WRITER
from endive.drivers.blocking import random_id
from endive.errors import CatalogNotFoundError, ConfigurationError, NotInCatalogError, StoreNotFoundError
from endive.kv import Reader, Store, StoreOptions
from endive.kv.at_checkpoint import StoreAtCheckpoint
from endive.objects import MemoryStore, ObjectStore, open_objects
from endive.protocol.requests import Steps

FOLDER = "_endive"
MEMORY = "memory://"


@dataclass
class _Shared:
    store: TransactionalStore
    users: int
    pid: int
    writer: str
    records: str | None


_stores: dict[str, _Shared] = {}
_memories: dict[str, ObjectStore] = {}
_private: set[str] = set()
"""Places in memory that were opened without a name."""
_lock = Lock()
"""Held for a moment, never during I/O."""
_url_locks: dict[str, Lock] = {}
"""Held while the store at a URL is opened or closed: only opens and closes of the same URL wait."""


def _forget_locks() -> None:
    """Replace the locks in a forked process: no thread there would release a lock that another thread held."""
    global _lock  # noqa: PLW0603 - it is what is shared
    _lock = Lock()
    _url_locks.clear()


os.register_at_fork(after_in_child=_forget_locks)


def _lock_of(url: str) -> Lock:
    with _lock:
        return _url_locks.setdefault(url, Lock())


def url_of(uri: str) -> str:
    """Return a URL for what may be a path; without a slash at its end. Paths are not escaped, as in PyIceberg."""
    if urlsplit(uri).scheme:
        return uri.rstrip("/") if not uri.endswith("://") else uri
    return f"file://{Path(uri).absolute()}"


CREDENTIALS = {
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
}
"""PyIceberg's properties, and obstore's names of the same."""


def place_of(uri: str) -> str:
    """Return the URL of the place that a catalog's `uri` means: a new one in memory if it only says `memory://`."""
    if uri != MEMORY:
        return url_of(uri)
    url = f"{MEMORY}{random_id()}"
    _private.add(url)
    return url


def open_place(url: str, properties: Mapping[str, str]) -> ObjectStore:
    """Return the objects at a URL, reached with PyIceberg's properties."""
    parts = urlsplit(url)
    records = properties.get(RECORDS)
    if parts.scheme == "memory" and records is not None:
        raise ConfigurationError(url, [f"{RECORDS}: a catalog in memory needs no record store"])
    if parts.scheme == "memory":
        return _memories.setdefault(url, MemoryStore())
    settings = {theirs: properties[ours] for ours, theirs in CREDENTIALS.items() if ours in properties}
    plain = parts.path if parts.scheme == "file" else url
    return open_objects(plain, endpoint=properties.get("s3.endpoint"), records=records, settings=settings)


OPTIONS = StoreOptions(reopen=True, max_parallel_writes=8, await_exclusive=True, warm_keys=(CATALOG,))
"""An exclusive catalog goes on after other processes have committed, and has several commit batches in flight. A shared
one lets an exclusive catalog of another process, such as a server's, carry out its commits. The catalog's record is
read by every opening."""


def _open(url: str, properties: Mapping[str, str], create: bool, writer: str) -> TransactionalStore:
    place = url if urlsplit(url).scheme == "memory" else f"{url}/{FOLDER}"
    try:
        return Store(open_place(place, properties), "exclusive" if writer == EXCLUSIVE else "shared", OPTIONS, create)
    except StoreNotFoundError as error:
        raise CatalogNotFoundError(url) from error


def open_store(url: str, properties: Mapping[str, str], create: bool) -> TransactionalStore:
    """Return the store at `url`, the one this process has or a new one. Give it back with `release_store`."""
    writer = properties.get(WRITER)
    with _lock_of(url):
        shared = _stores.get(url)
        if shared is None or shared.pid != os.getpid():  # after a fork, threads and connections are the parent's
            opened = _open(url, properties, create, writer or SHARED)
            shared = _stores[url] = _Shared(opened, 0, os.getpid(), writer or SHARED, properties.get(RECORDS))
        if writer not in (None, shared.writer):
            raise ConfigurationError(
                url, [f"{WRITER} is {writer}, but this process has the catalog open as {shared.writer}: close it first"]
            )
        if properties.get(RECORDS) != shared.records:
            raise ConfigurationError(url, [f"{RECORDS}: this process has the catalog open with another value"])
        shared.users += 1
        return shared.store


def release_store(url: str) -> None:
    """Close the store if no other catalog uses it."""
    with _lock_of(url):
        shared = _stores[url]
        shared.users -= 1
        if shared.users == 0:
            del _stores[url]
            shared.store.close()
            if url in _private:
                _private.remove(url)
                del _memories[url]


def open_at(url: str, properties: Mapping[str, str], name: str, now_ms: int) -> StoreAtCheckpoint:
    """Return the store of a catalog at one of the catalog's checkpoints. Writes nothing."""
    place = url if urlsplit(url).scheme == "memory" else f"{url}/{FOLDER}"
    objects = open_place(place, properties)
    try:
        with Reader(objects) as reader:
            body = reader.get(checkpoint_key(name))
    except StoreNotFoundError as error:
        raise CatalogNotFoundError(url) from error
    record = CheckpointRecord.decoded(body) if body is not None else None
    if record is None or not record.is_finished or record.is_expired(now_ms):
        raise NotInCatalogError("Checkpoint", name, "" if record is None else "it has expired")
    return StoreAtCheckpoint(objects, record.store_checkpoint, name)


def require_catalog(store: TransactionalStore, url: str, warehouse: str, create: bool, now_ms: int) -> str:
    """Read the catalog's record, or `create` it; return the warehouse: the given one, or the catalog's own."""

    def make(tx: StoreTransaction) -> Steps[bytes]:
        body = yield from tx.get(CATALOG)
        mark = yield from tx.get(CLONING)
        if body is None and mark is not None:
            source = CloneSource.decoded(mark)
            problem = f"it is a clone of {source.url} that was interrupted, or is still being made"
            raise ConfigurationError(url, [f"{problem}; `endive catalog clone {source.url} {url}` finishes it"])
        if body is None:
            body = CatalogRecord(PLAIN_FORMAT_VERSION, now_ms, warehouse).encoded()
            tx.put(CATALOG, body)
        return body

    body = store.read_cached(lambda tx: tx.get(CATALOG))  # the store has just been opened, or has the catalog open
    if body is None:
        body = store.read(lambda tx: tx.get(CATALOG))
    if body is None and create:
        body = retrying(lambda: store.transact(make))
    if body is None:
        raise CatalogNotFoundError(url)
    record = CatalogRecord.decoded(body)
    if record.format_version > FORMAT_VERSION:
        problem = f"the catalog has format {record.format_version}; this Endive knows up to {FORMAT_VERSION}: update it"
        raise ConfigurationError(url, [problem])
    return warehouse or record.warehouse
