"""Commits by REST: conflicts, unknown outcomes, unknown updates, idempotency keys, several tables."""

import copy
from typing import Any

import pytest

from endive.catalog import KVCatalog
from endive.errors import OutcomeUnknownError, StorageUnavailableError
from endive.server.application import Application
from tests.server.calls import KEY, SCHEMA, answer, create_table, error, send, set_property

PATH = "namespaces/db/tables/events"


def test_a_failed_requirement_is_a_conflict(application: Application) -> None:
    created = create_table(application)["metadata"]
    commit = {"requirements": [{"type": "assert-table-uuid", "uuid": created["table-uuid"]}]}

    assert answer(application, "POST", PATH, {**commit, "updates": [set_property("a", "1")]})[0] == 200
    stale = {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 7}
    refused = {"requirements": [stale], "updates": [set_property("a", "2")]}
    assert error(application, "POST", PATH, refused) == (409, "CommitFailedException")
    assert answer(application, "GET", PATH)[1]["metadata"]["properties"] == {"a": "1"}


@pytest.mark.parametrize(
    ("requirements", "updates", "status"),
    [
        ([], [{"action": "paint-it-blue"}], 400),
        ([{"type": "assert-weather"}], [set_property("a", "1")], 400),
        ([], [{"action": "set-current-schema", "schema-id": 99}], 400),
        ([], [{"action": "set-current-schema", "schema-id": -1}], 400),
        ([], [{"action": "set-snapshot-ref", "ref-name": "b", "type": "branch", "snapshot-id": 9}], 400),
        ([], [{"action": "upgrade-format-version", "format-version": 9}], 400),
        ([], [{"action": "add-snapshot", "snapshot": {"snapshot-id": 1, "key-id": "k"}}], 406),
        ([], [{"action": "add-encryption-key", "encryption-key": {}}], 406),
        ([], [{"action": "add-schema", "schema": {**SCHEMA, "colour": "blue"}}], 406),
    ],
)
def test_what_is_unknown_is_refused_and_changes_nothing(
    application: Application, requirements: list[Any], updates: list[Any], status: int
) -> None:
    before = create_table(application)

    commit = {"requirements": requirements, "updates": [set_property("first", "1"), *updates]}
    assert error(application, "POST", PATH, commit)[0] == status
    assert answer(application, "GET", PATH)[1] == before


def test_an_unknown_outcome_says_so(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(application)
    commit = {"updates": [set_property("a", "1")]}

    def fail(error: Exception) -> None:
        def raises(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(KVCatalog, "commit_and_load", raises)

    fail(OutcomeUnknownError("wal/7"))
    assert error(application, "POST", PATH, commit) == (500, "CommitStateUnknownException")
    fail(ZeroDivisionError("a defect"))
    assert error(application, "POST", PATH, commit) == (500, "CommitStateUnknownException")
    fail(StorageUnavailableError("wal/7", "throttled"))
    refused = send(application, "POST", PATH, commit)
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")


def test_a_repeated_commit_returns_the_result_of_the_first(application: Application) -> None:
    create_table(application)
    commit = {"updates": [set_property("a", "1")]}

    assert answer(application, "POST", PATH, commit, idempotency_key=KEY)[0] == 200
    other = answer(application, "POST", PATH, {"updates": [set_property("a", "2")]})[1]
    again = answer(application, "POST", PATH, commit, idempotency_key=KEY)
    assert again == (200, other)  # the table as it is now: nothing was committed a second time


def test_a_transaction_commits_all_tables_or_none(application: Application) -> None:
    uuids = [create_table(application, name)["metadata"]["table-uuid"] for name in ("one", "two")]

    def change(name: str, uuid: str, value: str) -> dict[str, Any]:
        return {
            "identifier": {"namespace": ["db"], "name": name},
            "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
            "updates": [set_property("a", value)],
        }

    def values() -> list[str | None]:
        paths = [f"namespaces/db/tables/{name}" for name in ("one", "two")]
        return [answer(application, "GET", path)[1]["metadata"]["properties"].get("a") for path in paths]

    both = {"table-changes": [change("one", uuids[0], "1"), change("two", uuids[1], "1")]}
    assert send(application, "POST", "transactions/commit", both).status == 204
    assert values() == ["1", "1"]
    half = {"table-changes": [change("one", uuids[0], "2"), change("two", uuids[0], "2")]}
    assert error(application, "POST", "transactions/commit", half) == (409, "CommitFailedException")
    assert values() == ["1", "1"]
    twice = {"table-changes": [change("one", uuids[0], "2")] * 2}
    assert error(application, "POST", "transactions/commit", twice)[0] == 400
    nameless = copy.deepcopy(both)
    del nameless["table-changes"][0]["identifier"]
    assert error(application, "POST", "transactions/commit", nameless)[0] == 400
    missing = {"table-changes": [change("none", uuids[0], "2")]}
    assert error(application, "POST", "transactions/commit", missing) == (404, "NoSuchTableException")


def test_a_body_for_another_table_is_refused(application: Application) -> None:
    create_table(application)

    commit = {"identifier": {"namespace": ["db"], "name": "other"}, "updates": [set_property("a", "1")]}
    assert error(application, "POST", PATH, commit)[0] == 400


def test_a_missing_property_can_be_removed(application: Application) -> None:
    create_table(application)
    removal = {"action": "remove-properties", "removals": ["gone"]}

    assert answer(application, "POST", PATH, {"updates": [removal]})[0] == 200
    status, found = answer(application, "POST", PATH, {"updates": [set_property("a", "1"), removal]})
    assert (status, found["metadata"]["properties"]) == (200, {"a": "1"})


def test_added_structures_get_the_next_numbers(application: Application) -> None:
    """Two clients number their schemas alike; each gets its own, and a schema that is there is found again."""
    create_table(application)
    wider = copy.deepcopy(SCHEMA)
    wider["fields"] = [*SCHEMA["fields"], {"id": 3, "name": "x", "type": "int", "required": False}]  # type: ignore[misc]
    other = copy.deepcopy(SCHEMA)
    other["fields"] = [*SCHEMA["fields"], {"id": 3, "name": "y", "type": "int", "required": False}]  # type: ignore[misc]

    def use(schema: Any) -> Any:
        added = {"action": "add-schema", "schema": {**schema, "schema-id": 1}}
        status, found = answer(
            application, "POST", PATH, {"updates": [added, {"action": "set-current-schema", "schema-id": -1}]}
        )
        assert status == 200, found
        return found["metadata"]["current-schema-id"], [one["schema-id"] for one in found["metadata"]["schemas"]]

    assert use(wider) == (1, [0, 1])
    assert use(other) == (2, [0, 1, 2])
    assert use(SCHEMA) == (0, [0, 1, 2])


def test_a_table_of_format_3_keeps_its_row_ids(application: Application) -> None:
    created = create_table(application, properties={"format-version": "3"})["metadata"]

    assert (created["format-version"], created["next-row-id"]) == (3, 0)
    upgraded = create_table(application, "old")["metadata"]
    assert upgraded["format-version"] == 2
    commit = {"updates": [{"action": "upgrade-format-version", "format-version": 3}]}
    status, found = answer(application, "POST", "namespaces/db/tables/old", commit)
    assert (status, found["metadata"]["next-row-id"]) == (200, 0)
    assert answer(application, "GET", "namespaces/db/tables/old")[1]["metadata"] == found["metadata"]
