"""Types, transforms and fields of format 3 that the catalog cannot keep are refused by name."""

from typing import Any

import pytest

from endive.server.application import Application
from tests.server.calls import SCHEMA, answer, create_table

TABLE = "namespaces/db/tables/events"
SEVERAL = {"source-ids": [1, 2], "field-id": 1000, "transform": "bucket[4]", "name": "both"}


def schema_with(kind: Any) -> dict[str, Any]:
    field = {"id": 3, "name": "new", "type": kind, "required": False}
    return {**SCHEMA, "fields": [*SCHEMA["fields"], field]}  # type: ignore[misc]


TYPES = [
    "variant",
    "no-such-type",
    {"type": "list", "element-id": 4, "element": "variant", "element-required": False},
    {"type": "map", "key-id": 4, "key": "string", "value-id": 5, "value": "variant", "value-required": False},
    {"type": "struct", "fields": [{"id": 4, "name": "inner", "type": "variant", "required": False}]},
]


def refused(answered: tuple[int, Any], word: str) -> None:
    status, found = answered
    assert (status, found["error"]["type"]) == (406, "UnsupportedOperationException")
    assert word in found["error"]["message"]
    assert "validation error" not in found["error"]["message"]


@pytest.mark.parametrize("kind", TYPES)
def test_unknown_types_are_refused_by_name(application: Application, kind: Any) -> None:
    create_table(application)
    word = "'no-such-type'" if kind == "no-such-type" else "'variant'"
    created = {"name": "other", "schema": schema_with(kind), "properties": {"format-version": "3"}}

    refused(answer(application, "POST", "namespaces/db/tables", created), word)
    added = {"updates": [{"action": "add-schema", "schema": schema_with(kind)}]}
    refused(answer(application, "POST", TABLE, added), word)
    assert len(answer(application, "GET", TABLE)[1]["metadata"]["schemas"]) == 1


@pytest.mark.parametrize(
    ("field", "word"),
    [
        (SEVERAL, "'bucket[4]' of 2"),
        ({"source-id": 1, "field-id": 1000, "transform": "zorder", "name": "z"}, "'zorder'"),
    ],
)
def test_unknown_transforms_and_those_of_several_columns_are_refused_by_name(
    application: Application, field: dict[str, Any], word: str
) -> None:
    create_table(application)
    sorted_by = {**field, "direction": "asc", "null-order": "nulls-first"}
    spec = {"spec-id": 1, "fields": [field]}
    order = {"order-id": 1, "fields": [{key: sorted_by[key] for key in sorted_by if key not in ("field-id", "name")}]}
    created = {"name": "other", "schema": SCHEMA}

    for part in ({"partition-spec": spec}, {"write-order": order}):
        refused(answer(application, "POST", "namespaces/db/tables", {**created, **part}), word)
    for update in ({"action": "add-spec", "spec": spec}, {"action": "add-sort-order", "sort-order": order}):
        refused(answer(application, "POST", TABLE, {"updates": [update]}), word)


def test_a_malformed_schema_is_answered_with_its_place(application: Application) -> None:
    wrong = {**SCHEMA, "fields": [{"id": "x", "name": "a", "type": "long", "required": True}]}

    status, found = answer(application, "POST", "namespaces/db/tables", {"name": "t", "schema": wrong})

    assert status == 400
    assert "fields.0.id" in found["error"]["message"]


def test_unknown_fields_of_statistics_are_refused_by_name(application: Application) -> None:
    location = create_table(application)["metadata"]["location"]
    kind = "apache-datasketches-theta-v1"
    blob = {"type": kind, "snapshot-id": 1, "sequence-number": 1, "fields": [1], "properties": {"ndv": "3"}}
    statistics = {
        "snapshot-id": 1,
        "statistics-path": f"{location}/metadata/s.puffin",
        "file-size-in-bytes": 10,
        "file-footer-size-in-bytes": 5,
        "blob-metadata": [blob],
    }

    def sent(value: dict[str, Any]) -> tuple[int, Any]:
        update = {"action": "set-statistics", "snapshot-id": 1, "statistics": value}
        return answer(application, "POST", TABLE, {"updates": [update]})

    refused(sent({**statistics, "new-field": 1}), "'new-field'")
    refused(sent({**statistics, "blob-metadata": [{**blob, "compression": "zstd"}]}), "'compression'")
    assert sent(statistics)[0] == 200
    assert answer(application, "GET", TABLE)[1]["metadata"]["statistics"] == [statistics]
