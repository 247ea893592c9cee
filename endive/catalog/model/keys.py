"""The keys of records: one function for each kind of key.

    __catalog                                    the catalog itself
    __namespaces/{namespace}                     a namespace
    __tables/{namespace}/{table}                 a table
    __views/{namespace}/{view}                   a view
    __uuids/{uuid}                               the name of the table with this uuid
    __parts/{uuid}/{digest}                      a large part of a table's record
    __snapshots/{uuid}/{snapshot id}             a snapshot of a table
    __history/{uuid}/{number}                    when which snapshot became current
    __files/{uuid}/{snapshot id}/{path}          a file that a snapshot added, deleted, or has from an expired ancestor
    __commits/{uuid}/id/{commit id}              the stored result of a commit
    __commits/{uuid}/version/{version}           the commit id of a version, so that old results can be deleted
    __commits/{uuid}/oldest                      the first version that may have a stored result
    __imported/{uuid}                            the metadata file that a table was registered by
    __dropped/{uuid}                             a dropped table, until its rows are deleted
    __checkpoints/{name}                         a checkpoint of the whole catalog
    __cloned/{uuid}                              the location of the files that a cloned table owns
    __cloning                                    of a catalog that is being made as a clone
    __requests/{idempotency key}                 the stored result of a request that is not a commit to tables
    __request_queue/{number}                     the idempotency keys of these requests, in order
    __request_queue                              the numbers of the first and the next key in the queue
    __grants/{user or group}/{name}              the privileges of a user or a group
    __webhooks/{name}                            the last delivered versions of tables, for a receiver of events
    __receivers                                  the names of the receivers of events
    __outbox/{number}                            events that are still to be delivered

Snapshots and files are under the table's uuid, so that a rename writes one record. The levels of a namespace are joined
by dots, and everything in a name but letters, digits, `_`, `-` and `~` is written as in URLs (`%2E` for a dot): keys
are readable, names may hold any character, and no two names share a key or the start of one.
"""

from functools import lru_cache
from urllib.parse import quote, unquote
from uuid import UUID

from endive.catalog.model.names import Identifier

CATALOG = b"__catalog"
NAMESPACES = "__namespaces/"
TABLES = "__tables/"
VIEWS = "__views/"
UUIDS = "__uuids/"
PARTS = "__parts/"
SNAPSHOTS = "__snapshots/"
HISTORY = "__history/"
FILES = "__files/"
COMMITS = "__commits/"
IMPORTED = "__imported/"
DROPPED = "__dropped/"
CHECKPOINTS = "__checkpoints/"
CLONED = "__cloned/"
CLONING = b"__cloning"
REQUESTS = "__requests/"
REQUEST_QUEUE = b"__request_queue"
GRANTS = "__grants/"
RECEIVERS = b"__receivers"
OUTBOX = "__outbox/"


def escaped(text: str) -> str:
    """Return `text` without slashes and dots, readable where it can be."""
    if text.isalnum() and text.isascii():
        return text
    return quote(text, safe="").replace(".", "%2E")


def _joined(namespace: Identifier) -> str:
    return ".".join(escaped(level) for level in namespace)


def _split(text: str) -> Identifier:
    return tuple(unquote(level) for level in text.split("."))


def namespace_key(namespace: Identifier) -> bytes:
    """Return the key of a namespace's record."""
    return (NAMESPACES + _joined(namespace)).encode()


def namespaces_below(namespace: Identifier) -> bytes:
    """Return the prefix of the namespaces inside one, at any depth; of all namespaces for `()`."""
    return (NAMESPACES + (_joined(namespace) + "." if namespace else "")).encode()


def namespace_from(key: bytes) -> Identifier:
    """Return the namespace whose key this is."""
    return _split(key.decode().removeprefix(NAMESPACES))


@lru_cache(maxsize=4096)
def table_key(identifier: Identifier) -> bytes:
    """Return the key of a table's record."""
    return (f"{TABLES}{_joined(identifier[:-1])}/" + escaped(identifier[-1])).encode()


def tables_in(namespace: Identifier) -> bytes:
    """Return the prefix of the tables of a namespace, without those of its inner namespaces."""
    return f"{TABLES}{_joined(namespace)}/".encode()


def tables_below(namespace: Identifier) -> bytes:
    """Return the prefix of the tables in the namespaces inside one; of all tables for `()`."""
    return (TABLES + (_joined(namespace) + "." if namespace else "")).encode()


def table_from(key: bytes) -> Identifier:
    """Return the table whose key this is."""
    namespace, _, table = key.decode().removeprefix(TABLES).partition("/")
    return (*_split(namespace), unquote(table))


def view_key(identifier: Identifier) -> bytes:
    """Return the key of a view's record."""
    return (f"{VIEWS}{_joined(identifier[:-1])}/" + escaped(identifier[-1])).encode()


def views_in(namespace: Identifier) -> bytes:
    """Return the prefix of the views of a namespace, without those of its inner namespaces."""
    return f"{VIEWS}{_joined(namespace)}/".encode()


def views_below(namespace: Identifier) -> bytes:
    """Return the prefix of the views in the namespaces inside one; of all views for `()`."""
    return (VIEWS + (_joined(namespace) + "." if namespace else "")).encode()


def view_from(key: bytes) -> Identifier:
    """Return the view whose key this is."""
    namespace, _, view = key.decode().removeprefix(VIEWS).partition("/")
    return (*_split(namespace), unquote(view))


def uuid_key(uuid: UUID) -> bytes:
    """Return the key of the name of a table, by its uuid."""
    return f"{UUIDS}{uuid}".encode()


def parts_of(uuid: UUID | str) -> bytes:
    """Return the prefix of the parts of a table's record."""
    return f"{PARTS}{uuid}/".encode()


@lru_cache(maxsize=4096)
def snapshots_of(uuid: UUID) -> bytes:
    """Return the prefix of a table's snapshots."""
    return f"{SNAPSHOTS}{uuid}/".encode()


def snapshot_key(uuid: UUID, snapshot_id: int) -> bytes:
    """Return the key of a snapshot's record."""
    return snapshots_of(uuid) + str(snapshot_id).encode()


def history_of(uuid: UUID) -> bytes:
    """Return the prefix of a table's history, sorted by time."""
    return f"{HISTORY}{uuid}/".encode()


def history_key(uuid: UUID, number: int) -> bytes:
    """Return the key of one entry of the history."""
    return history_of(uuid) + f"{number:020d}".encode()


def files_of(uuid: UUID, snapshot_id: int | None = None) -> bytes:
    """Return the prefix of a table's files, or of those that one snapshot changed."""
    return (f"{FILES}{uuid}/" + ("" if snapshot_id is None else f"{snapshot_id}/")).encode()


def file_key(uuid: UUID, snapshot_id: int, path: str) -> bytes:
    """Return the key of a file's record; the path, with its slashes, is the end of the key."""
    return files_of(uuid, snapshot_id) + path.encode()


@lru_cache(maxsize=4096)
def commits_of(uuid: UUID) -> bytes:
    """Return the prefix of the stored results of a table's commits."""
    return f"{COMMITS}{uuid}/".encode()


def commit_key(uuid: UUID, commit_id: str) -> bytes:
    """Return the key of a commit's stored result."""
    return commits_of(uuid) + f"id/{escaped(commit_id)}".encode()


def commit_version_key(uuid: UUID, version: int) -> bytes:
    """Return the key of the commit id of a version."""
    return commits_of(uuid) + f"version/{version:020d}".encode()


def oldest_result_key(uuid: UUID) -> bytes:
    """Return the key of the version from which on a table has stored results."""
    return commits_of(uuid) + b"oldest"


def imported_key(uuid: UUID) -> bytes:
    """Return the key of the metadata file that a table was registered by."""
    return f"{IMPORTED}{uuid}".encode()


def dropped_key(uuid: UUID) -> bytes:
    """Return the key of the mark of a dropped table."""
    return f"{DROPPED}{uuid}".encode()


def checkpoint_key(name: str) -> bytes:
    """Return the key of a checkpoint."""
    return f"{CHECKPOINTS}{escaped(name)}".encode()


def cloned_key(uuid: UUID) -> bytes:
    """Return the key of the location of the files that a cloned table owns."""
    return f"{CLONED}{uuid}".encode()


def request_key(key: str) -> bytes:
    """Return the key of the stored result of a request."""
    return f"{REQUESTS}{escaped(key)}".encode()


def queued_request_key(number: int) -> bytes:
    """Return the key of the idempotency key with this number in the queue."""
    return REQUEST_QUEUE + f"/{number:020d}".encode()


def webhook_key(name: str) -> bytes:
    """Return the key of the last delivered versions, for a receiver of events."""
    return f"__webhooks/{escaped(name)}".encode()


def outbox_key(number: int) -> bytes:
    """Return the key of a row of the outbox."""
    return f"{OUTBOX}{number:020d}".encode()


def grants_key(kind: str, name: str) -> bytes:
    """Return the key of the grants of a user or a group."""
    return f"{GRANTS}{kind}/{escaped(name)}".encode()
