"""Views: transaction functions, and the operations of a catalog.

A view is one record, and a metadata file of each version. Tables and views of a namespace share their names: a
transaction that takes a name looks for both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic_core import from_json, to_json

from endive.catalog.commit.metadata_files import MetadataFiles, reading_metadata
from endive.catalog.model.grants import Grantee, Place
from endive.catalog.model.keys import table_key, view_from, view_key, views_in
from endive.catalog.model.names import Identifier, namespace_of, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.model.view_metadata import check_view_requirements, updated_view
from endive.catalog.model.view_records import COMMITS_STORED, Json, ViewRecord
from endive.catalog.operations.grant_rows import forget_place, names_by_uuid, own
from endive.catalog.operations.namespaces import require_namespace
from endive.catalog.operations.outbox import named, note
from endive.catalog.operations.requests import KeyedRequest, digest_of, keyed, once, recorded
from endive.catalog.operations.retries import dropping, retrying
from endive.catalog.operations.table_rows import rename_taken
from endive.errors import (
    AlreadyInCatalogError,
    CommitConflictError,
    CommitRetriesExhaustedError,
    ConfigurationError,
    NotInCatalogError,
)
from endive.protocol.requests import Steps

ATTEMPTS_MAX = 100
METADATA_PATH = "write.metadata.path"
"""Iceberg's property: the folder of metadata files."""


def find_view(tx: StoreTransaction, identifier: Identifier) -> Steps[ViewRecord | None]:
    """Return a view's record; None if there is no such view."""
    body = yield from tx.get(view_key(identifier))
    return None if body is None else ViewRecord.decoded(body)


def require_view(tx: StoreTransaction, identifier: Identifier) -> Steps[ViewRecord]:
    """Return a view's record, or raise."""
    record = yield from find_view(tx, identifier)
    if record is None:
        raise NotInCatalogError("View", text_of(identifier))
    return record


def list_views(tx: StoreTransaction, namespace: Identifier) -> Steps[tuple[Identifier, ...]]:
    """Return the views of a namespace that exists."""
    yield from require_namespace(tx, namespace)
    rows = yield from tx.scan(views_in(namespace))
    return tuple(view_from(key) for key, _ in rows)


def put_view(tx: StoreTransaction, new: ViewRecord, base_version: int | None, is_retry: bool) -> Steps[bool]:
    """Put a view's record if the view is at `base_version`; None: if there is none. False if it is at another one.

    `is_retry`: the outcome of an earlier try is unknown; its record is recognised by its metadata file.
    """
    there = yield from find_view(tx, new.identifier)
    if there is not None and is_retry and there.metadata_location == new.metadata_location:
        return True
    if base_version is None:
        yield from require_namespace(tx, new.identifier[:-1])
        if there is not None:
            raise AlreadyInCatalogError("View", text_of(new.identifier))
        if (yield from tx.get(table_key(new.identifier))) is not None:
            raise AlreadyInCatalogError("Table with same name", text_of(new.identifier))
        yield from _require_unused_uuid(tx, new.uuid)
    elif there is None or there.uuid != new.uuid:
        raise NotInCatalogError("View", text_of(new.identifier))
    elif there.version != base_version:
        return False
    tx.put(view_key(new.identifier), new.encoded())
    kind = "view-created" if base_version is None else "view-committed"
    yield from note(tx, named(kind, new.identifier, new.uuid, new.version))
    return True


def drop_view(tx: StoreTransaction, identifier: Identifier) -> Steps[None]:
    """Remove a view."""
    record = yield from require_view(tx, identifier)
    tx.delete(view_key(identifier))
    yield from note(tx, named("view-dropped", identifier, record.uuid, record.version, id=""))
    yield from forget_place(tx, Place("view", uuid=record.uuid))


def _require_unused_uuid(tx: StoreTransaction, uuid: str) -> Steps[None]:
    """Raise if a view has this uuid: both would share their grants."""
    found = yield from names_by_uuid(tx, "view", frozenset((uuid,)))
    for name in found.values():
        raise AlreadyInCatalogError("View", f"{text_of(name)}, with the same uuid {uuid}")


def rename_view(tx: StoreTransaction, source: Identifier, target: Identifier, uuid: str | None) -> Steps[str]:
    """Move a view to another name; return its uuid. `uuid`: the view that an earlier try was to move."""
    there = yield from find_view(tx, target)
    if there is not None and there.uuid == uuid:
        return there.uuid
    record = yield from require_view(tx, source)
    yield from require_namespace(tx, target[:-1])
    if there is not None:
        raise rename_taken("View", source, target)
    if (yield from tx.get(table_key(target))) is not None:
        raise rename_taken("Table", source, target)
    tx.delete(view_key(source))
    tx.put(view_key(target), replace(record, identifier=target).encoded())
    before = {"id": "", "old-namespace": source[:-1], "old-view": source[-1]}
    yield from note(tx, named("view-renamed", target, record.uuid, record.version, **before))
    return record.uuid


@dataclass(frozen=True, slots=True)
class LoadedView:
    """A view as it was when it was loaded."""

    identifier: Identifier
    metadata: Json
    """Iceberg's view metadata, under Iceberg's names. It is shared: do not change it."""
    metadata_location: str


class Views:
    """The views of a catalog."""

    def __init__(
        self,
        store: TransactionalStore,
        files: MetadataFiles,
        location_for: Callable[[Identifier, str, str | None], str],
        clock: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._files = files
        self._location_for = location_for
        self._clock = clock
        self._new_id = new_id

    def create(
        self,
        name: Identifier,
        schema: Json,
        version: Json,
        location: str | None,
        properties: Mapping[str, str],
        uuid: str | None,
        owner: Grantee | None = None,
    ) -> LoadedView:
        """Create a view. `uuid`: given by the caller as an idempotency key. `owner`: will manage the view."""
        digest = digest_of(schema, version, location, dict(properties))
        request = keyed(uuid, f"create view {text_of(name)}", self._clock(), digest)

        def run() -> LoadedView:
            known = self._store.read(lambda tx: find_view(tx, name)) if uuid is not None else None
            if known is not None and known.uuid == uuid:
                return _loaded(known)
            metadata = self._first_metadata(name, schema, version, location, properties, uuid)
            return self._create(name, metadata, owner, request)

        def replay(_: object) -> LoadedView:
            loaded = self.load(name)
            if loaded.metadata["view-uuid"] != uuid:
                raise NotInCatalogError("View", text_of(name))
            return loaded

        return once(self._store, request, run, replay)

    def _first_metadata(
        self,
        name: Identifier,
        schema: Json,
        version: Json,
        location: str | None,
        properties: Mapping[str, str],
        uuid: str | None,
    ) -> Json:
        """Return the metadata of a view to be created."""
        chosen = uuid or _dashed(self._new_id())
        self._store.read(lambda tx: require_namespace(tx, name[:-1]))
        updates: list[Json] = [
            {"action": "assign-uuid", "uuid": chosen},
            {"action": "set-location", "location": self._location_for(name, chosen, location)},
            {"action": "set-properties", "updates": dict(properties)},
            {"action": "add-schema", "schema": schema},
            {"action": "add-view-version", "view-version": {**version, "schema-id": -1}},
            {"action": "set-current-view-version", "view-version-id": -1},
        ]
        return updated_view(name, None, updates, self._clock())

    def register(self, name: Identifier, metadata_location: str, key: str | None = None) -> LoadedView:
        """Add a view by its metadata file."""
        request = keyed(key, f"register view {text_of(name)} by {metadata_location}", self._clock())
        return once(
            self._store, request, lambda: self._register(name, metadata_location, request), lambda _: self.load(name)
        )

    def _register(self, name: Identifier, metadata_location: str, request: KeyedRequest | None) -> LoadedView:
        with (
            reading_metadata(metadata_location),
            self._files.io(metadata_location).new_input(metadata_location).open() as stream,
        ):
            metadata = from_json(stream.read())
        if not isinstance(metadata, dict) or not {"view-uuid", "versions", "location"} <= metadata.keys():
            raise ConfigurationError(metadata_location, ["this is not the metadata file of a view"])
        record = ViewRecord(name, 0, metadata, metadata_location)
        self._install(record, None, request)
        return _loaded(record)

    def _create(
        self, name: Identifier, metadata: Json, owner: Grantee | None, request: KeyedRequest | None
    ) -> LoadedView:
        record = ViewRecord(name, 0, metadata, self._write(metadata, 0))
        try:
            self._install(record, None, request, owner)
        except (AlreadyInCatalogError, NotInCatalogError):
            self._files.delete(record.metadata_location)
            raise
        return _loaded(record)

    def _write(self, metadata: Json, version: int) -> str:
        """Write the metadata file of a version; its name is unique."""
        folder = metadata.get("properties", {}).get(METADATA_PATH) or f"{metadata['location'].rstrip('/')}/metadata"
        location = f"{folder.rstrip('/')}/{version:05d}-{_dashed(self._new_id())}.metadata.json"
        with self._files.io(location).new_output(location).create(overwrite=True) as stream:
            stream.write(to_json(metadata))
        return location

    def commit(
        self, name: Identifier, requirements: Sequence[Json], updates: Sequence[Json], commit_id: str | None
    ) -> LoadedView:
        """Commit Iceberg's updates to a view if its requirements hold."""
        digest = digest_of(requirements, updates)
        request = keyed(commit_id, f"commit to view {text_of(name)}", self._clock(), digest)
        return once(
            self._store,
            request,
            lambda: self._commit(name, requirements, updates, commit_id or self._new_id(), request),
            lambda _: self.load(name),
        )

    def _commit(
        self,
        name: Identifier,
        requirements: Sequence[Json],
        updates: Sequence[Json],
        own_id: str,
        request: KeyedRequest | None,
    ) -> LoadedView:
        for _ in range(ATTEMPTS_MAX):
            base = self._store.read(lambda tx: require_view(tx, name))
            if own_id in base.commit_ids:
                return _loaded(base)
            check_view_requirements(name, base.metadata, requirements)
            metadata = updated_view(name, base.metadata, updates, self._clock())
            if metadata is base.metadata:
                return _loaded(base)
            ids = (*base.commit_ids, own_id)[-COMMITS_STORED:]
            version = base.version + 1
            new = ViewRecord(name, version, metadata, self._write(metadata, version), ids)
            if self._install(new, base.version, request):
                return _loaded(new)
            self._files.delete(new.metadata_location)
        raise CommitRetriesExhaustedError(
            text_of(name), f"lost {ATTEMPTS_MAX} races in a row", ATTEMPTS_MAX, "attempts"
        )

    def _install(
        self,
        new: ViewRecord,
        base_version: int | None,
        request: KeyedRequest | None = None,
        owner: Grantee | None = None,
    ) -> bool:
        def put(tx: StoreTransaction, is_retry: bool) -> Steps[bool]:
            found = (yield from request.find(tx)) if request is not None else None
            if found is not None and not is_retry:
                raise CommitConflictError(text_of(new.identifier), "a retry has done it meanwhile")
            done = yield from put_view(tx, new, base_version, is_retry)
            if done and request is not None and found is None:
                yield from request.put(tx, {})
            yield from own(tx, owner, Place("view", uuid=new.uuid))
            return done

        return retrying(
            lambda: self._store.transact(lambda tx: put(tx, False)),
            lambda: self._store.transact(lambda tx: put(tx, True)),
        )

    def load(self, name: Identifier) -> LoadedView:
        """Return a view as it is now."""
        return _loaded(self._store.read(lambda tx: require_view(tx, name)))

    def exists(self, name: Identifier) -> bool:
        """Whether there is such a view."""
        return self._store.read(lambda tx: find_view(tx, name)) is not None

    def list(self, namespace: str | Identifier) -> tuple[Identifier, ...]:
        """Return the views directly in a namespace."""
        levels = namespace_of(namespace)
        return self._store.read(lambda tx: list_views(tx, levels))

    def drop(self, name: Identifier, key: str | None = None) -> None:
        """Remove a view. Its metadata files stay: with the newest one it can be registered again."""
        request = keyed(key, f"drop view {text_of(name)}", self._clock())

        def drop(tx: StoreTransaction) -> Steps[None]:
            yield from recorded(tx, request, drop_view(tx, name))

        once(self._store, request, lambda: dropping(lambda: self._store.transact(drop)), lambda _: None)

    def rename(self, source: Identifier, target: Identifier, key: str | None = None) -> None:
        """Move a view to another name, in its namespace or another."""
        request = keyed(key, f"rename view {text_of(source)} to {text_of(target)}", self._clock())

        def rename(tx: StoreTransaction, uuid: str | None) -> Steps[None]:
            yield from recorded(tx, request, rename_view(tx, source, target, uuid))

        def run() -> None:
            found = self._store.read(lambda tx: find_view(tx, source))
            uuid = found.uuid if found is not None else None
            retrying(
                lambda: self._store.transact(lambda tx: rename(tx, None)),
                lambda: self._store.transact(lambda tx: rename(tx, uuid)),
            )

        once(self._store, request, run, lambda _: None)


def _loaded(record: ViewRecord) -> LoadedView:
    return LoadedView(record.identifier, record.metadata, record.metadata_location)


def _dashed(hexadecimal: str) -> str:
    """Return an id in the form of a uuid."""
    text = hexadecimal.replace("-", "")
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))
