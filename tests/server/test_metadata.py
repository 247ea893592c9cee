"""The JSON of metadata that is put together from kept parts is the JSON of PyIceberg's models."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel
from pyiceberg.catalog import load_catalog
from pyiceberg.table.metadata import TableMetadata

from endive.catalog import KVCatalog
from endive.catalog.model.encoding import ByIdentity
from endive.catalog.operations import table_rows
from endive.server import serve_in_background
from endive.server.application import Application
from endive.server.http import json_response
from endive.server.metadata import metadata_json
from tests.server.calls import send


def sent_json(metadata: TableMetadata, mode: str) -> Any:
    response = json_response({"before": [1], "metadata": metadata_json(metadata, mode), "after": {"a": "b"}})
    body = json.loads(response.body)
    assert (body["before"], body["after"]) == ([1], {"a": "b"})
    return body["metadata"]


@pytest.mark.parametrize("version", ["1", "2"])
def test_it_is_what_pyiceberg_writes(catalog: KVCatalog, version: str) -> None:
    rows = pa.table({"n": [1]})
    with serve_in_background(catalog) as server:
        client = load_catalog("lake", type="rest", **server.client_properties)
        client.create_namespace("db")
        table = client.create_table("db.t", rows.schema, properties={"format-version": version})
        for _ in range(3):
            table.append(rows)
        table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "first").commit()
    metadata = catalog.load_table("db.t").metadata

    sent = sent_json(metadata, "all")
    assert sent == BaseModel.model_dump(metadata, mode="json", exclude_none=True, by_alias=True)
    assert sent_json(metadata.model_copy(update={"snapshots": [], "snapshot_log": []}), "all")["snapshots"] == []
    named = {one["snapshot-id"] for one in sent_json(metadata, "refs")["snapshots"]}
    assert named == {ref.snapshot_id for ref in metadata.refs.values()}
    assert len(named) == 2


def test_a_load_reads_no_more_of_the_past_than_it_answers(
    catalog: KVCatalog, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"n": [1]})
    with serve_in_background(catalog) as server:
        table = load_catalog("lake", type="rest", **server.client_properties).create_table("db.t", rows.schema)
        for _ in range(3):
            table.append(rows)
    path = "namespaces/db/tables/t"
    whole = send(application, "GET", path)

    def no_past(*_: object) -> None:
        raise AssertionError("the whole past was read")

    monkeypatch.setattr(table_rows, "whole_view", no_past)
    assert send(application, "GET", path, headers={"if-none-match": whole.headers["etag"]}).status == 304
    named = send(application, "GET", f"{path}?snapshots=refs")
    assert named.status == 200
    found, expected = json.loads(named.body)["metadata"], json.loads(whole.body)["metadata"]
    assert found == {**expected, "snapshots": expected["snapshots"][-1:]}
    tag = named.headers["etag"]
    assert send(application, "GET", f"{path}?snapshots=refs", headers={"if-none-match": tag}).status == 304
    assert send(application, "GET", path).status == 500  # the patch is in the way of a whole load


def test_no_more_than_the_newest_are_kept() -> None:
    keep = ByIdentity(2, len)
    parts = [[None] * number for number in range(5)]
    assert [keep(one) for one in parts + parts] == [*range(5)] * 2
    assert len(keep._held) == 2
