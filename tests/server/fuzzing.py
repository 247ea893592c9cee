"""Requests for every operation of the server: well-formed ones, and the same with parts replaced, removed or repeated.

The operations come from the server's own table of routes, so that a new operation is tested without being named here;
bodies of known operations are close to valid, so that errors are met deep inside and not at the door.
"""

import copy
import json
from typing import Any

from hypothesis import strategies as st

from endive.server.application import REFUSED, ROUTES
from endive.server.http import Request, query_of
from endive.server.routes import Route
from tests.server.calls import KEY, SCHEMA, VERSION

USUAL = ["db", "t", "v", "new"]
NAMES = st.sampled_from(
    [
        *USUAL,
        *USUAL,
        "db",
        "db",
        "db",
        "a.b",
        "x/y",
        "ä",
        "t",
        "v",
        "new",
        "",
        " ",
        "..",
        "\x00",
        "%",
        "a\x1fb",
        "_endive",
    ]
)
IN_PATHS = {"{namespace}": st.just("db") | st.just("db") | NAMES, "{table}": st.just("t") | NAMES}
"""Mostly names of objects that exist."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
ODD: st.SearchStrategy[object] = st.sampled_from(
    [None, -1, 2**63, 2**70, 1e308, "", "x", [], {}, True, "assert-create", {"type": "struct"}]
)

SNAPSHOT = {
    "snapshot-id": 5,
    "sequence-number": 1,
    "timestamp-ms": 1_700_000_000_000,
    "manifest-list": "memory://nowhere/snap.avro",
    "summary": {"operation": "append"},
    "schema-id": 0,
}
SPEC = {"spec-id": 1, "fields": [{"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "b"}]}
ORDER = {
    "order-id": 1,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}
UPDATES: list[dict[str, Any]] = [
    {"action": "assign-uuid", "uuid": "01890a5d-ac96-774b-bcce-b302099a8057"},
    {"action": "upgrade-format-version", "format-version": 3},
    {"action": "add-schema", "schema": SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": SPEC},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": ORDER},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "add-snapshot", "snapshot": SNAPSHOT},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5},
    {"action": "remove-snapshots", "snapshot-ids": [5]},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "set-location", "location": "memory://elsewhere"},
    {"action": "set-properties", "updates": {"a": "1"}},
    {"action": "remove-properties", "removals": ["a"]},
    {"action": "remove-schemas", "schema-ids": [0]},
    {"action": "remove-partition-specs", "spec-ids": [0]},
    {"action": "add-view-version", "view-version": VERSION},
    {"action": "set-current-view-version", "view-version-id": -1},
    {"action": "remove-statistics", "snapshot-id": 5},
    {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": ""}},
]
REQUIREMENTS: list[dict[str, Any]] = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "01890a5d-ac96-774b-bcce-b302099a8057"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
]
COMMIT = st.fixed_dictionaries(
    {
        "requirements": st.lists(st.sampled_from(REQUIREMENTS), max_size=2),
        "updates": st.lists(st.sampled_from(UPDATES), max_size=4),
    }
)
NAME = st.fixed_dictionaries({"namespace": st.lists(NAMES, max_size=2), "name": NAMES})
FILTER = {"type": "and", "left": {"type": "eq", "term": "id", "value": 1}, "right": {"type": "is-null", "term": "name"}}

BODIES: dict[str, st.SearchStrategy[Any]] = {
    "namespaces": st.fixed_dictionaries({"namespace": st.lists(NAMES, max_size=3), "properties": st.just({"a": "1"})}),
    "properties": st.just({"removals": ["a"], "updates": {"b": "1"}}),
    "tables": st.fixed_dictionaries(
        {"name": NAMES, "schema": st.just(SCHEMA)},
        optional={
            "stage-create": st.booleans(),
            "partition-spec": st.just(SPEC),
            "write-order": st.just(ORDER),
            "properties": st.just({"format-version": "2"}),
            "location": st.sampled_from(["memory://elsewhere", "..", "", "nowhere://x"]),
        },
    ),
    "views": st.fixed_dictionaries({"name": NAMES, "schema": st.just(SCHEMA), "view-version": st.just(VERSION)}),
    "register": st.fixed_dictionaries(
        {"name": NAMES, "metadata-location": st.sampled_from(["memory://no/v1.json", "nowhere://x", "", "/"])},
        optional={"overwrite": st.booleans()},
    ),
    "rename": st.fixed_dictionaries({"source": NAME, "destination": NAME}),
    "commit": st.fixed_dictionaries(
        {"table-changes": st.lists(st.builds(lambda name, one: {**one, "identifier": name}, NAME, COMMIT), max_size=3)}
    ),
    "plan": st.fixed_dictionaries(
        {},
        optional={
            "snapshot-id": st.sampled_from([5, -1]),
            "filter": st.just(FILTER),
            "stats-fields": st.just(["id"]),
            "use-snapshot-schema": st.booleans(),
        },
    ),
    "tasks": st.just({"plan-task": "x"}),
}
BODIES["register-view"] = BODIES["register"]
BODIES["{table}"] = BODIES["{view}"] = COMMIT


@st.composite
def broken(draw: st.DrawFn, value: Any) -> Any:
    """Return a value with one part, at any depth, replaced, removed or repeated."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in children:
            places.append((node, key))
            walk(child)

    walk(value)
    if not places:
        return draw(JSON)
    node, key = draw(st.sampled_from(places))
    change = draw(st.sampled_from(["replace", "odd", "remove", "repeat"]))
    if change == "remove":
        del node[key]
    elif change == "repeat" and isinstance(node, list):
        node.append(node[key])
    else:
        node[key] = draw(JSON if change == "replace" else ODD)
    return value


@st.composite
def bodies(draw: st.DrawFn, route: Route) -> bytes:
    """Return a body for an operation: valid, broken, any JSON, or bytes that are none."""
    kind = draw(st.sampled_from(["valid", "valid", "broken", "broken", "broken", "json", "bytes"]))
    if kind == "bytes":
        return draw(st.binary(max_size=20) | st.sampled_from([b"[" * 100_000, b'{"a":' * 5000, b"\xff", b""]))
    sent = draw(BODIES.get(route.template.rpartition("/")[2], JSON)) if kind != "json" else draw(JSON)
    return json.dumps(draw(broken(sent)) if kind == "broken" else sent).encode()


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Return a request to any operation."""
    route = draw(st.sampled_from([*ROUTES, *REFUSED]))
    parts = [_quoted(draw(IN_PATHS.get(part, NAMES))) if part[0] == "{" else part for part in route.template.split("/")]
    words = ["pageToken=", "pageToken=a%1Fb", "pageSize=2", "pageSize=x", "snapshots=refs", "snapshots=x"]
    words += ["purgeRequested=true", "purgeRequested=2", "parent=db", "parent=%1F", "parent="]
    query = "&".join(draw(st.lists(st.sampled_from(words), max_size=2)))
    headers = draw(
        st.sampled_from([{}, {}, {"idempotency-key": KEY}, {"idempotency-key": "x"}, {"if-none-match": "*"}])
    )
    body = draw(bodies(route)) if route.method == "POST" else b""
    return Request(route.method, f"/v1/{'/'.join(parts)}", query_of(query), headers, body)
