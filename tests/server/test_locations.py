"""What a table's writer could do to another table through locations, registration, manifests or purge."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table

from endive.catalog import KVCatalog
from endive.catalog.commit import manifests
from endive.catalog.maintenance.candidates import is_inside
from endive.catalog.maintenance.protection import without_others
from endive.catalog.model.grants import Grantee, Privilege
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.server import Limits, RunningServer
from endive.server.access import Principal, Tokens, hashed
from endive.server.access.locations import check_properties
from endive.server.application import Application
from endive.server.errors import HttpError
from tests.server.calls import SCHEMA, VERSION, answer, set_property

READ, WRITE, CREATE, MANAGE = Privilege
ROWS = pa.table({"id": [1, 2, 3]})
STRUCTURE: list[dict[str, Any]] = [
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
    {"action": "set-default-sort-order", "sort-order-id": -1},
]
"""The updates of a commit that creates a table, but for its uuid and location."""


@pytest.fixture
def application(catalog: KVCatalog) -> Application:
    """A server for `mallory`, who may create in `own`, `vic`, who may create in `db`, and an administrator."""
    names = ("mallory", "vic", "admin")
    for namespace in ("db", "own"):
        catalog.create_namespace(namespace)
    catalog.grants.grant(Grantee("user", "mallory"), [CREATE], catalog.grants.place("own"))
    catalog.grants.grant(Grantee("user", "vic"), [CREATE], catalog.grants.place("db"))
    catalog.grants.grant(Grantee("user", "admin"), [MANAGE])
    return Application({"lake": catalog}, Tokens({hashed(name): Principal(name) for name in names}))


@pytest.fixture
def server(application: Application) -> Iterator[RunningServer]:
    with RunningServer(application, Limits(threads=8), "mallory").start() as running:
        yield running


def client(server: RunningServer, who: str) -> Catalog:
    return load_catalog(who, type="rest", uri=server.url, token=who)


def ask(application: Application, who: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    status, found = answer(application, method, path, body, authorization=f"Bearer {who}")
    return status, "" if not found or "error" not in found else found["error"]["message"]


def create(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "schema": SCHEMA, **more}


@pytest.fixture
def victim(server: RunningServer) -> Table:
    table = client(server, "vic").create_table("db.orders", ROWS.schema)
    table.append(ROWS)
    return table


def snapshot_json(table: Table) -> dict[str, Any]:
    current = table.current_snapshot()
    assert current is not None
    found = current.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**found, "snapshot-id": 77, "sequence-number": 99, "timestamp-ms": current.timestamp_ms + 60_000}


@pytest.mark.parametrize("kind", ["tables", "views"])
def test_a_creator_cannot_choose_a_location(application: Application, catalog: KVCatalog, kind: str) -> None:
    more: dict[str, Any] = {"view-version": VERSION} if kind == "views" else {}
    for chosen in (
        catalog.warehouse,
        f"{catalog.warehouse}/db",
        f"{catalog.warehouse}/own/t",
        "file:///etc",
        "s3://b/t",
    ):
        assert (
            ask(application, "mallory", "POST", f"namespaces/own/{kind}", create("t", location=chosen, **more))[0]
            == 403
        )
    for name in ("write.metadata.path", "write.data.path", "write.object-storage.path"):
        body = create("t", properties={name: f"{catalog.warehouse}/db"}, **more)
        assert ask(application, "mallory", "POST", f"namespaces/own/{kind}", body)[0] == 403
    assert ask(application, "mallory", "POST", f"namespaces/own/{kind}", create("t", **more))[0] == 200
    chosen = f"{catalog.warehouse}/elsewhere"
    assert ask(application, "admin", "POST", f"namespaces/own/{kind}", create("a", location=chosen, **more))[0] == 200


def test_a_namespace_cannot_be_moved_over_others(application: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(Grantee("user", "mallory"), [MANAGE], catalog.grants.place("own"))
    moved = {"updates": {"location": f"{catalog.warehouse}/db"}}

    assert ask(application, "mallory", "POST", "namespaces/own/properties", moved)[0] == 403
    inner = {"namespace": ["own", "inner"], "properties": {"location": f"{catalog.warehouse}/db"}}
    assert ask(application, "mallory", "POST", "namespaces", inner)[0] == 403
    assert ask(application, "admin", "POST", "namespaces/own/properties", moved)[0] == 200


def test_a_table_cannot_be_moved_into_another(application: Application, victim: Table) -> None:
    ask(application, "mallory", "POST", "namespaces/own/tables", create("t"))
    for update in (
        {"action": "set-location", "location": victim.location()},
        set_property("write.metadata.path", f"{victim.location()}/metadata"),
        set_property("write.data.path", f"{victim.location()}/../x"),
        {"action": "add-snapshot", "snapshot": snapshot_json(victim)},
        {
            "action": "set-statistics",
            "snapshot-id": 1,
            "statistics": {"statistics-path": f"{victim.location()}/s.puffin", "snapshot-id": 1},
        },
    ):
        status, message = ask(application, "mallory", "POST", "namespaces/own/tables/t", {"updates": [update]})
        assert status == 403, message
        assert "the location of" in message


def test_a_staged_table_keeps_the_location_that_the_server_chose(application: Application, victim: Table) -> None:
    """The uuid of a staged table is the client's, and part of its location: another table's must not be matched."""
    uuid = str(victim.metadata.table_uuid)[:8] + "-0000-4000-8000-000000000000"

    def commit(name: str, location: str) -> tuple[int, str]:
        updates = [{"action": "assign-uuid", "uuid": uuid}, {"action": "set-location", "location": location}]
        body = {"requirements": [{"type": "assert-create"}], "updates": updates}
        return ask(application, "mallory", "POST", f"namespaces/own/tables/{name}", body)

    assert commit("orders", victim.location())[0] == 403
    assert "server's choice" in commit("orders", victim.location())[1]


def test_a_table_cannot_be_created_with_the_uuid_of_a_dropped_one(application: Application, catalog: KVCatalog) -> None:
    """Its creator would own the dropped table as soon as a checkpoint brings it back."""
    vic = {"authorization": "Bearer vic"}
    _, made = answer(application, "POST", "namespaces/db/tables", create("orders"), **vic)
    uuid = made["metadata"]["table-uuid"]
    catalog.create_checkpoint("before")
    assert ask(application, "vic", "DELETE", "namespaces/db/tables/orders")[0] == 204
    location = catalog.tables.location_for(("own", "t"), uuid.replace("-", ""), None)
    first = [{"action": "assign-uuid", "uuid": uuid}, {"action": "set-location", "location": location}]
    for updates in (first, first[:1]):
        body = {"requirements": [{"type": "assert-create"}], "updates": [*updates, *STRUCTURE]}
        status, message = ask(application, "mallory", "POST", "namespaces/own/tables/t", body)
        assert status in (400, 403), message
    assert not catalog.table_exists("own.t")

    catalog.restore("before")
    assert ask(application, "mallory", "GET", "namespaces/db/tables/orders")[0] == 403


def test_folders_that_look_the_same_are_kept_apart(application: Application, catalog: KVCatalog, victim: Table) -> None:
    """Namespaces such as `d.b` and `d_b` have one folder; a chosen uuid could then give two tables one location."""
    catalog.create_namespace(("o/n",))
    catalog.create_namespace("o_n")
    catalog.grants.grant(Grantee("user", "mallory"), [CREATE], catalog.grants.place(("o/n",)))
    uuid = "12345678-0000-4000-8000-000000000000"
    location = catalog.tables.location_for(("o_n", "t"), uuid.replace("-", ""), None)
    status, _ = ask(application, "admin", "POST", "namespaces/o_n/tables", create("t", location=location))
    assert status == 200

    updates = [{"action": "assign-uuid", "uuid": uuid}, {"action": "set-location", "location": location}]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    status, message = ask(application, "mallory", "POST", "namespaces/o%2Fn/tables/t", body)
    assert (status, "another table is in the location" in message) == (403, True)


def test_a_list_cannot_name_manifests_of_another_table(
    application: Application, server: RunningServer, victim: Table
) -> None:
    """The server would read them with its own keys, and show their files and bounds as those of the caller's table."""
    own = client(server, "mallory").create_table("own.t", ROWS.schema)
    own.append(ROWS)
    stolen = snapshot_json(victim)
    copied = Path(own.location().removeprefix("file://")) / "metadata" / "snap-copied.avro"
    copied.write_bytes(Path(stolen["manifest-list"].removeprefix("file://")).read_bytes())
    updates = [{"action": "add-snapshot", "snapshot": {**stolen, "manifest-list": f"file://{copied}"}}]

    status, message = ask(application, "mallory", "POST", "namespaces/own/tables/t", {"updates": updates})
    assert (status, "a manifest is not below the location" in message) == (403, True)
    change = {"identifier": {"namespace": ["own"], "name": "t"}, "updates": updates}
    assert ask(application, "mallory", "POST", "transactions/commit", {"table-changes": [change]})[0] == 403


def test_a_list_that_was_replaced_shows_no_manifests_of_another_table(
    application: Application, server: RunningServer, victim: Table, catalog: KVCatalog
) -> None:
    """Where the records have no files, as of a registered table, scans are planned from the list as it is now."""
    own = client(server, "mallory").create_table("own.t", ROWS.schema)
    own.append(ROWS)
    found = catalog.unregister_table("own.t")
    catalog.register_table("own.t", found.metadata_location)
    catalog.grants.grant(Grantee("user", "mallory"), [WRITE], catalog.grants.place(table="own.t"))
    path = "namespaces/own/tables/t/plan"
    assert ask(application, "mallory", "POST", path, {})[0] == 200

    current, theirs = found.metadata.current_snapshot(), victim.current_snapshot()
    assert current is not None
    assert theirs is not None
    copied = Path(theirs.manifest_list.removeprefix("file://")).read_bytes()
    Path(current.manifest_list.removeprefix("file://")).write_bytes(copied)
    status, message = ask(application, "mallory", "POST", path, {})
    assert (status, "manifests of another table" in message) == (400, True)


def test_a_list_that_was_replaced_shows_no_manifests_of_another_warehouse(
    application: Application,
    server: RunningServer,
    catalog: KVCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer can have its files left out of the records, by a list that counts too many of them."""
    with KVCatalog.create(str(tmp_path / "other")) as other:
        other.create_namespace("db")
        theirs = EndiveCatalog.on(other).create_table("db.orders", ROWS.schema)
        theirs.append(ROWS)
    own = client(server, "mallory").create_table("own.t", ROWS.schema)
    monkeypatch.setattr(manifests, "ENTRIES_MAX", 0)
    own.append(ROWS)
    path = "namespaces/own/tables/t/plan"
    assert ask(application, "mallory", "POST", path, {})[0] == 200

    lists = [Path(snapshot_json(one)["manifest-list"].removeprefix("file://")) for one in (own, theirs)]
    lists[0].write_bytes(lists[1].read_bytes())
    status, message = ask(application, "mallory", "POST", path, {})
    assert (status, "manifests of another table" in message) == (400, True)


def test_only_managers_of_the_warehouse_register_files(
    application: Application, server: RunningServer, victim: Table, catalog: KVCatalog
) -> None:
    catalog.grants.grant(Grantee("user", "mallory"), [MANAGE], catalog.grants.place("own"))
    client(server, "vic").drop_table("db.orders")  # its files stay, and with them all that it held
    register = {"name": "stolen", "metadata-location": victim.metadata_location}

    for path in ("register", "register-view"):
        assert ask(application, "mallory", "POST", f"namespaces/own/{path}", register)[0] == 403
    assert ask(application, "admin", "POST", "namespaces/db/register", register)[0] == 200


def test_a_purge_leaves_files_of_other_tables(server: RunningServer, victim: Table, catalog: KVCatalog) -> None:
    """A manifest may name any data file: a purge of the table must not delete those of others."""
    own = client(server, "mallory").create_table("own.t", ROWS.schema)
    own.append(ROWS)
    files = [Path(one.file.file_path.removeprefix("file://")) for one in catalog.plan_files("db.orders")]
    own.add_files([f"file://{one}" for one in files], check_duplicate_files=False)
    outside = Path(catalog.warehouse.removeprefix("file://")) / "precious.parquet"
    outside.write_bytes(files[0].read_bytes())
    own.add_files([f"file://{outside}"], check_duplicate_files=False)
    mine = [one.file.file_path for one in catalog.plan_files("own.t") if "/own/" in one.file.file_path]

    client(server, "mallory").purge_table("own.t")
    assert all(one.exists() for one in files)
    assert outside.exists()
    assert mine
    assert not any(Path(one.removeprefix("file://")).exists() for one in mine)


def test_an_expiry_leaves_files_of_other_tables(server: RunningServer, victim: Table, catalog: KVCatalog) -> None:
    own = client(server, "mallory").create_table("own.t", ROWS.schema)
    files = [Path(one.file.file_path.removeprefix("file://")) for one in catalog.plan_files("db.orders")]
    own.add_files([f"file://{one}" for one in files])
    own.overwrite(ROWS)
    expired = catalog.expire_snapshots("own.t", older_than_unix_ms=2**53, keep_last=1)

    assert expired.snapshot_ids
    assert all(one.exists() for one in files)


def files_that_are_not_its_own(catalog: KVCatalog) -> list[Path]:
    """Return files that a manifest may name: in the catalog's own folder, and of the machine that maintains it."""
    lake = Path(catalog.warehouse.removeprefix("file://"))
    found = [lake / "_endive" / "state.parquet", lake.parent / "operators.parquet", lake / "dropped" / "f.parquet"]
    for one in found:
        one.parent.mkdir(exist_ok=True)
        pq.write_table(ROWS, one)
    return found


def test_an_expiry_leaves_files_outside_the_tables_folders(server: RunningServer, catalog: KVCatalog) -> None:
    """Maintenance runs with the operator's keys: a manifest must not have it delete the catalog, or a file at hand."""
    own = client(server, "mallory").create_table("own.t", ROWS.schema)
    files = files_that_are_not_its_own(catalog)
    own.append(ROWS)
    (mine,) = (Path(one.file.file_path.removeprefix("file://")) for one in catalog.plan_files("own.t"))
    own.add_files([f"file://{one}" for one in files], check_duplicate_files=False)
    own.overwrite(ROWS)
    expired = catalog.expire_snapshots("own.t", older_than_unix_ms=2**53, keep_last=1)

    assert expired.snapshot_ids
    assert not mine.exists()
    assert [one for one in files if not one.exists()] == []


def test_a_managers_purge_leaves_files_outside_the_tables_folders(
    application: Application, server: RunningServer, catalog: KVCatalog
) -> None:
    own = client(server, "mallory").create_table("own.t", ROWS.schema)
    files = files_that_are_not_its_own(catalog)
    own.add_files([f"file://{one}" for one in files], check_duplicate_files=False)

    assert ask(application, "admin", "DELETE", "namespaces/own/tables/t?purgeRequested=true")[0] == 204
    assert not Path(own.metadata_location.removeprefix("file://")).exists()
    assert [one for one in files if not one.exists()] == []


def test_files_in_folders_that_properties_name_are_the_tables_own(server: RunningServer, catalog: KVCatalog) -> None:
    """Only a manager of the warehouse can set such a property to a folder outside the location."""
    elsewhere = f"{catalog.warehouse}/elsewhere"
    table = client(server, "admin").create_table("own.t", ROWS.schema, properties={"write.data.path": elsewhere})
    table.append(ROWS)
    (first,) = (Path(one.file.file_path.removeprefix("file://")) for one in catalog.plan_files("own.t"))
    table.overwrite(ROWS)
    catalog.expire_snapshots("own.t", older_than_unix_ms=2**53, keep_last=1)

    assert first.is_relative_to(elsewhere.removeprefix("file://"))
    assert not first.exists()


@pytest.mark.parametrize("spelling", ["{}?x", "{}#x", "file://host{0}", "{}/.", "{}/x/.."])
def test_other_spellings_of_a_location_are_other_locations(application: Application, spelling: str) -> None:
    """`file://host/…` is written below the directory of the server, and what follows `?` hides the table there."""
    _, made = answer(application, "POST", "namespaces/own/tables", create("t"), authorization="Bearer mallory")
    location = made["metadata"]["location"]
    other = spelling.format(location.removeprefix("file://") if "host" in spelling else location)
    update = {"action": "set-location", "location": other}

    status, message = ask(application, "mallory", "POST", "namespaces/own/tables/t", {"updates": [update]})
    assert (status, "cannot be changed" in message) == (403, True)
    same = {"action": "set-location", "location": location + "/"}
    assert ask(application, "mallory", "POST", "namespaces/own/tables/t", {"updates": [same]})[0] == 200


@pytest.mark.parametrize("spelling", ["{}?x", "{}#x", "{}/./"])
def test_a_taken_location_is_taken_in_every_spelling(
    application: Application, catalog: KVCatalog, spelling: str
) -> None:
    _, made = answer(application, "POST", "namespaces/own/tables", create("orders"), authorization="Bearer mallory")
    catalog.create_namespace("vics")
    catalog.rename_table("own.orders", "vics.orders")
    uuid = made["metadata"]["table-uuid"][:8] + "-0000-4000-8000-000000000000"
    location = spelling.format(made["metadata"]["location"])
    updates = [{"action": "assign-uuid", "uuid": uuid}, {"action": "set-location", "location": location}]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}

    assert ask(application, "mallory", "POST", "namespaces/own/tables/orders", body)[0] == 403


def test_fields_in_pythons_spelling_pass_no_check(application: Application, victim: Table) -> None:
    """PyIceberg's models take `statistics_path` for `statistics-path`."""
    ask(application, "mallory", "POST", "namespaces/own/tables", create("t"))
    path, sizes = f"{victim.location()}/s.puffin", {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
    named = {"snapshot-id": 1, **sizes, "blob-metadata": []}
    for update in (
        {"action": "set-statistics", "snapshot-id": 1, "statistics": {**named, "statistics_path": path}},
        {"action": "set-partition-statistics", "partition-statistics": {**named, "statistics_path": path}},
        {"action": "set-partition-statistics", "partition_statistics": {**named, "statistics-path": path}},
        {"action": "add-snapshot", "snapshot": {**snapshot_json(victim), "manifest_list": path}},
    ):
        status, message = ask(application, "mallory", "POST", "namespaces/own/tables/t", {"updates": [update]})
        assert status in (400, 403), message


def test_a_namespace_with_the_name_of_a_tables_folder_has_another_folder(
    application: Application, catalog: KVCatalog
) -> None:
    """Its tables would lie inside the table: with its keys they could be read, and its orphans could not be removed."""
    _, made = answer(application, "POST", "namespaces/own/tables", create("t"), authorization="Bearer mallory")
    location = made["metadata"]["location"]
    folder = location.rpartition("/")[2]
    catalog.create_namespace(("own", folder))

    _, inner = answer(
        application, "POST", f"namespaces/own%1F{folder}/tables", create("t"), authorization="Bearer mallory"
    )
    assert not is_inside(location, inner["metadata"]["location"])
    assert catalog.remove_orphan_files("own.t", 0) == []


@pytest.mark.parametrize(
    "name",
    ["py-io-impl", "s3.endpoint", "s3.access-key-id", "write.py-location-provider.impl", "client.region", "io-impl"],
)
def test_properties_that_reach_files_or_name_code_are_refused(
    application: Application, name: str, tmp_path: Path
) -> None:
    for who in ("mallory", "admin"):
        assert ask(application, who, "POST", "namespaces/own/tables", create("x", properties={name: "x"}))[0] == 403
    assert ask(application, "admin", "POST", "namespaces/own/tables", create("t"))[0] == 200
    body = {"updates": [set_property(name, "x")]}
    assert ask(application, "admin", "POST", "namespaces/own/tables/t", body)[0] == 403
    with pytest.raises(HttpError):
        check_properties({name: "x"})


def test_ordinary_writers_notice_nothing(server: RunningServer, catalog: KVCatalog) -> None:
    mallory = client(server, "mallory")
    table = mallory.create_table("own.t", ROWS.schema, properties={"write.parquet.compression-codec": "zstd"})
    table.append(ROWS)
    table.overwrite(ROWS)
    with mallory.create_table_transaction("own.staged", ROWS.schema) as transaction:
        transaction.append(ROWS)
    assert mallory.load_table("own.staged").scan().to_arrow().num_rows == 3
    with pytest.raises(ForbiddenError):
        mallory.load_table("db.orders")
    assert catalog.check() == []


def test_a_key_cannot_be_searched_for_another_tables_folder(
    application: Application, catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renamed table keeps its folder; a new one with its old name and the same eight digits would get the same."""
    bearer = {"authorization": "Bearer mallory"}
    status, made = answer(application, "POST", "namespaces/own/tables", create("orders"), **bearer)
    assert status == 200
    uuid = made["metadata"]["table-uuid"]
    catalog.create_namespace("vics")
    catalog.rename_table("own.orders", "vics.orders")
    found = uuid[:8] + "-0000-4000-8000-000000000000"
    monkeypatch.setattr(Principal, "request_id", lambda _self, _key: found)

    keyed = {**bearer, "idempotency_key": "01890a5d-ac96-774b-bcce-b302099a8057"}
    status, refused = answer(application, "POST", "namespaces/own/tables", create("orders"), **keyed)
    assert (status, "another table is in the location" in refused["error"]["message"]) == (403, True)


def test_below_means_below() -> None:
    assert is_inside("s3://b/t", "s3://b/t/x")
    for path in (
        "s3://b/t",
        "s3://b/tt/x",
        "s3://c/t/x",
        "s3://b/t/../u/x",
        "/b/t/x",
        "s3://b/u",
        "",
        "http://b/t/x",
        "gs://b/t/x",
    ):
        assert not is_inside("s3://b/t", path), path
    assert not is_inside("", "s3://b/t")
    assert is_inside("s3a://b/t", "s3://b/t/x")
    assert is_inside("/lake/t", "file:///lake/t/x")
    assert not is_inside("/lake/t", "file://host/lake/t/x")


def test_the_inner_of_two_locations_decides() -> None:
    paths = ["s3://b/a/x", "s3://b/a/in/x", "s3://b/c/x"]
    assert without_others(paths, "s3://b/a", ["s3://b/a/in"]) == ["s3://b/a/x", "s3://b/c/x"]
    assert without_others(paths, "s3://b/a/in", ["s3://b/a"]) == ["s3://b/a/in/x", "s3://b/c/x"]
    assert without_others(paths, "s3://b/a", ["s3://b/a"]) == paths
