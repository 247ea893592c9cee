"""Scan planning by REST: the same files, delete files and residuals as PyIceberg plans from manifests."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, LongType, NestedField, StringType

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.server import scans, serve_in_background
from endive.server.application import Application
from tests.catalog.delete_files import change_of, data_paths, deletes_of, entry
from tests.server.calls import answer, error

PATH = "namespaces/db/tables/t"
PLAN = f"{PATH}/plan"
COLUMNS = Schema(
    NestedField(1, "n", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "raw", BinaryType(), required=False),
)
BY_KIND = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="kind"))


def rows(kind: str | None, *values: int) -> pa.Table:
    columns = {"n": pa.array(values, pa.int64()), "kind": pa.array([kind] * len(values), pa.string())}
    return pa.table({**columns, "raw": pa.array([b"\x01\xff"] * len(values), pa.large_binary())})


@pytest.fixture
def table(application: Application, catalog: KVCatalog) -> Table:
    """Four files: `a` with 1 and 2, `b` with 3 and 4, one without a kind, and `a` with 10."""
    made = EndiveCatalog.on(catalog).create_table(("db", "t"), COLUMNS, partition_spec=BY_KIND)
    for one in (rows("a", 1, 2), rows("b", 3, 4), rows(None, 5), rows("a", 10)):
        made.append(one)
    return made.refresh()


def planned(application: Application, body: dict[str, Any]) -> Any:
    status, found = answer(application, "POST", PLAN, body)
    assert status == 200, found
    assert found["status"] == "completed"
    return found


def paths(found: Any) -> list[str]:
    return [one["data-file"]["file-path"] for one in found["file-scan-tasks"]]


def literal(kind: str, column: str, value: object) -> dict[str, object]:
    return {"type": kind, "term": column, "value": value}


def test_a_plan_has_the_files_of_the_manifests_and_reads_none(application: Application, table: Table) -> None:
    expected = sorted(one.file.file_path for one in table.scan().plan_files())
    for file in Path(table.location().removeprefix("file://")).rglob("*.avro"):
        file.unlink()

    found = planned(application, {})

    assert paths(found) == expected
    assert [one["residual-filter"] for one in found["file-scan-tasks"]] == [True] * 4
    first = next(one["data-file"] for one in found["file-scan-tasks"] if one["data-file"]["partition"] == ["b"])
    assert (first["content"], first["file-format"], first["record-count"]) == ("data", "parquet", 2)
    assert "lower-bounds" not in first


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (literal("gt", "n", 4), "n > 4"),
        (literal("eq", "kind", "a"), "kind = 'a'"),
        (
            {"type": "or", "left": literal("eq", "kind", "b"), "right": literal("lt", "n", 2)},
            "kind = 'b' or n < 2",
        ),
    ],
)
def test_a_filter_prunes_and_leaves_residuals(application: Application, table: Table, sent: Any, meant: str) -> None:
    tasks = list(table.scan(row_filter=meant).plan_files())

    found = planned(application, {"filter": sent})

    assert paths(found) == sorted(one.file.file_path for one in tasks)
    if sent == literal("eq", "kind", "a"):
        assert [one["residual-filter"] for one in found["file-scan-tasks"]] == [True, True]
    if sent["type"] == "gt":
        assert [one["residual-filter"] for one in found["file-scan-tasks"]] == [sent] * len(tasks)


def test_a_null_partition_value_is_compared_with_nothing(application: Application, table: Table) -> None:
    either = {"type": "or", "left": literal("lt", "kind", "aa"), "right": literal("eq", "n", 5)}

    found = planned(application, {"filter": either})

    residuals = {str(one["data-file"]["partition"][0]): one["residual-filter"] for one in found["file-scan-tasks"]}
    assert residuals == {"a": True, "None": either}


def test_literals_of_binary_columns_are_hexadecimal(application: Application, table: Table) -> None:
    assert len(paths(planned(application, {"filter": literal("eq", "raw", "01ff")}))) == 4
    assert paths(planned(application, {"filter": literal("eq", "raw", "02")})) == []
    values = {"type": "in", "term": "raw", "values": ["01ff", "00"]}
    found = planned(application, {"filter": values})
    assert found["file-scan-tasks"][0]["residual-filter"] == {**values, "values": ["00", "01ff"]}


def test_statistics_are_sent_for_the_columns_asked_for(application: Application, table: Table) -> None:
    found = planned(application, {"stats-fields": ["n"], "filter": literal("eq", "kind", "b")})

    (file,) = [one["data-file"] for one in found["file-scan-tasks"]]
    assert file["lower-bounds"] == {"keys": [1], "values": ["0300000000000000"]}
    assert file["value-counts"] == {"keys": [1], "values": [2]}
    assert error(application, "POST", PLAN, {"stats-fields": ["no"]}) == (400, "BadRequestException")


def test_delete_files_come_once_and_are_referred_to(application: Application, catalog: KVCatalog, table: Table) -> None:
    path = data_paths(table)[0]
    for position in (0, 1):
        deletes = deletes_of(table, path, position, partition=Record("a"))
        catalog.commit_many([change_of(table.refresh(), [entry(deletes)])])

    found = planned(application, {})

    assert len(found["delete-files"]) == 2
    referring = {one["data-file"]["file-path"]: one.get("delete-file-references") for one in found["file-scan-tasks"]}
    assert sorted(referring.pop(path)) == [0, 1]
    assert set(referring.values()) == {None}  # also the other file of the partition: the bounds name the path
    assert found["delete-files"][0]["content"] == "position-deletes"


def test_equality_deletes_apply_to_older_files_of_their_partition(
    application: Application, catalog: KVCatalog, table: Table
) -> None:
    deletes = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"{table.location()}/data/equality.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record("a"),
        record_count=1,
        file_size_in_bytes=10,
        equality_ids=[1],
    )
    deletes.spec_id = table.spec().spec_id
    catalog.commit_many([change_of(table, [entry(deletes)])])
    older = {one.file.file_path for one in table.scan(row_filter="kind = 'a'").plan_files()}
    table.refresh().append(rows("a", 20))

    found = planned(application, {})

    with_deletes = {
        one["data-file"]["file-path"] for one in found["file-scan-tasks"] if one.get("delete-file-references")
    }
    assert with_deletes == older
    assert len(older) == 2
    assert found["delete-files"][0]["equality-ids"] == [1]


def test_pages_are_fetched_from_any_server(
    application: Application, catalog: KVCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "FILES_PER_PAGE", 3)
    first = planned(application, {})
    table.append(rows("c", 30))  # the plan stays on its snapshot
    other = Application({"lake": catalog})

    (task,) = first["plan-tasks"]
    status, second = answer(other, "POST", f"{PATH}/tasks", {"plan-task": task})

    assert status == 200
    assert len(paths(first)) == 3
    assert sorted(paths(first) + paths(second)) == sorted(
        one.file.file_path for one in table.scan(snapshot_id=table.snapshots()[3].snapshot_id).plan_files()
    )
    assert answer(other, "GET", f"{PLAN}/{first['plan-id']}") == (200, first)
    assert answer(other, "DELETE", f"{PLAN}/{first['plan-id']}") == (204, None)
    assert error(other, "POST", f"{PATH}/tasks", {"plan-task": first["plan-id"]})[1] == "NoSuchPlanTaskException"


def test_a_plan_of_another_table_or_of_an_expired_snapshot_is_gone(
    application: Application, catalog: KVCatalog, table: Table
) -> None:
    found = planned(application, {})
    EndiveCatalog.on(catalog).create_table(("db", "other"), COLUMNS)

    assert error(application, "GET", f"namespaces/db/tables/other/plan/{found['plan-id']}") == (
        404,
        "NoSuchPlanIdException",
    )
    assert error(application, "GET", f"{PLAN}/eJwrMwQAATwAqA") == (404, "NoSuchPlanIdException")
    assert error(application, "POST", f"{PATH}/tasks", {"plan-task": "x"}) == (404, "NoSuchPlanTaskException")
    table.append(rows("c", 30))
    catalog.expire_snapshots("db.t", older_than_unix_ms=2**62, keep_last=1)
    assert error(application, "GET", f"{PLAN}/{found['plan-id']}") == (404, "NoSuchPlanIdException")


def test_appends_between_two_snapshots(application: Application, table: Table) -> None:
    first, second, third = (one.snapshot_id for one in table.snapshots()[:3])

    found = planned(application, {"start-snapshot-id": first, "end-snapshot-id": third})

    assert [one["data-file"]["partition"] for one in found["file-scan-tasks"]].count(["b"]) == 1
    assert len(paths(found)) == 2
    turned = {"start-snapshot-id": third, "end-snapshot-id": second}
    assert error(application, "POST", PLAN, turned) == (400, "IllegalArgumentException")
    assert error(application, "POST", PLAN, {"start-snapshot-id": first})[0] == 400


def test_a_filter_with_the_schema_of_a_snapshot(application: Application, table: Table) -> None:
    old = table.snapshots()[0].snapshot_id
    with table.update_schema() as update:
        update.rename_column("n", "number")

    by_name = {"snapshot-id": old, "filter": literal("eq", "n", 1)}

    assert error(application, "POST", PLAN, by_name) == (400, "BadRequestException")
    assert len(paths(planned(application, {**by_name, "use-snapshot-schema": True}))) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"snapshot-id": 7}, 400),
        ({"filter": literal("eq", "no", 1)}, 400),
        ({"filter": literal("eq", "n", "x")}, 400),
        ({"filter": literal("near", "n", 1)}, 400),
        ({"filter": {"type": "eq", "term": "n"}}, 400),
        ({"filter": literal("eq", "n", None)}, 400),
        ({"filter": literal("eq", "raw", "zz")}, 400),
        ({"filter": "n = 1"}, 400),
        ({"filter": {"type": "eq", "term": {"type": "transform", "transform": "day", "term": "n"}, "value": 1}}, 406),
    ],
)
def test_requests_that_cannot_be_planned_are_refused(
    application: Application, table: Table, body: Any, status: int
) -> None:
    assert error(application, "POST", PLAN, body)[0] == status


def test_deep_filters_are_refused(application: Application, table: Table) -> None:
    deep: dict[str, object] = literal("eq", "n", 1)
    for _ in range(200):
        deep = {"type": "not", "child": deep}

    assert error(application, "POST", PLAN, {"filter": deep}) == (400, "BadRequestException")


def test_format_3_is_refused_by_name(application: Application, catalog: KVCatalog) -> None:
    EndiveCatalog.on(catalog).create_table(("db", "t"), COLUMNS, properties={"format-version": "3"})

    status, found = answer(application, "POST", PLAN, {})

    assert status == 406
    assert "format 3" in found["error"]["message"]


def test_pyiceberg_reads_the_same_rows_with_the_server_s_plans(catalog: KVCatalog, table: Table) -> None:
    catalog.commit_many([change_of(table, [entry(deletes_of(table, data_paths(table)[0], 0, partition=Record("a")))])])
    with serve_in_background(catalog) as server:
        local = RestCatalog("lake", **server.client_properties).load_table("db.t")
        planning = {"scan-planning-mode": "server"}
        remote = RestCatalog("lake", **server.client_properties, **planning).load_table("db.t")

        # PyIceberg's client accepts no null partition values in a plan, so the file with one is filtered out.
        for row_filter in ("kind = 'a'", "kind = 'b' or n < 3", "kind is not null and n > 1", "n in (2, 10)"):
            expected = local.scan(row_filter).to_arrow().sort_by("n").to_pylist()
            assert remote.scan(row_filter).to_arrow().sort_by("n").to_pylist() == expected
        assert remote.scan("n < 4").to_arrow()["n"].to_pylist() == [2, 3]
