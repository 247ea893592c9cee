"""Requests to the application, without HTTP."""

import json
from typing import Any

from endive.server.application import Application
from endive.server.http import Request, Response, query_of

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}
VERSION = {
    "version-id": 1,
    "timestamp-ms": 1,
    "schema-id": 0,
    "summary": {"engine": "spark"},
    "default-namespace": ["db"],
    "representations": [{"type": "sql", "sql": "select * from events", "dialect": "spark"}],
}
KEY = "01890a5d-ac96-774b-bcce-b302099a8057"
OTHER_KEY = "01890a5d-ac96-774b-bcce-b302099a8058"


def send(
    application: Application, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> Response:
    plain, _, query = path.partition("?")
    sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return application.answer(Request(method, f"/v1/{plain}", query_of(query), headers or {}, sent))


def answer(application: Application, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = send(application, method, path, body, named)
    return response.status, json.loads(response.body) if response.body else None


def error(application: Application, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """Return the status and the type of an error."""
    status, found = answer(application, method, path, body, **headers)
    assert found["error"]["code"] == status
    assert found["error"]["message"]
    return status, found["error"]["type"]


def create_table(application: Application, name: str = "events", /, **more: object) -> Any:
    status, found = answer(application, "POST", "namespaces/db/tables", {"name": name, "schema": SCHEMA, **more})
    assert status == 200, found
    return found


def set_property(key: str, value: str) -> dict[str, object]:
    return {"action": "set-properties", "updates": {key: value}}
