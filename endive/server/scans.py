"""Scan planning: plan, poll, fetch tasks, cancel.

Planning works on records and takes milliseconds, so every plan is completed at once; polling gives the same answer
again. An answer has at most `FILES_PER_PAGE` files, and a task for every further page.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from pyiceberg.conversions import to_json
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from endive.catalog.catalog import KVCatalog
from endive.catalog.scan_plan import FORMAT_MAX, PlannedFile, ScanPlan, ScanRequest
from endive.errors import NotInCatalogError
from endive.server.errors import HttpError, bad_request, not_acceptable
from endive.server.expressions import expression_json, expression_of
from endive.server.http import NO_CONTENT, Response, json_response
from endive.server.messages import FetchTasks, PlanScan
from endive.server.routes import Call
from endive.server.scan_tokens import PlanToken

FILES_PER_PAGE = 1000
PLANS_CACHED = 16
"""Plans of several pages; others are computed again."""
PLAN_ID_CHARACTERS_MAX = 4096
"""A longer one does not fit into the paths that proxies accept: such a plan has no id, and cannot be polled."""

CONTENT = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position-deletes",
    DataFileContent.EQUALITY_DELETES: "equality-deletes",
}
COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")


class _Plans:
    """The newest plans of several pages, by their tokens."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[PlanToken, ScanPlan] = OrderedDict()

    def get(self, token: PlanToken) -> ScanPlan | None:
        with self._lock:
            return self._held.get(token)

    def add(self, token: PlanToken, plan: ScanPlan) -> None:
        with self._lock:
            self._held[token] = plan
            while len(self._held) > PLANS_CACHED:
                self._held.popitem(last=False)

    def remove(self, token: PlanToken) -> None:
        with self._lock:
            self._held.pop(token, None)


_plans: WeakKeyDictionary[KVCatalog, _Plans] = WeakKeyDictionary()


def plan_scan(call: Call) -> Response:
    """Plan a scan."""
    asked = call.request.decoded(PlanScan)
    is_between = asked.start_snapshot_id is not None or asked.end_snapshot_id is not None
    if is_between and (asked.snapshot_id is not None or None in (asked.start_snapshot_id, asked.end_snapshot_id)):
        raise bad_request("A scan has either snapshot-id, or both start-snapshot-id and end-snapshot-id")
    loaded = call.catalog.load_table(call.table)
    if loaded.metadata.format_version > FORMAT_MAX:
        raise not_acceptable(f"planning scans of tables of format {loaded.metadata.format_version}: plan in the client")
    current = loaded.metadata.current_snapshot_id
    token = PlanToken(
        table=str(loaded.uuid),
        snapshot=None if is_between else current if asked.snapshot_id is None else asked.snapshot_id,
        start=asked.start_snapshot_id,
        end=asked.end_snapshot_id,
        filter=asked.filter,
        case_sensitive=asked.case_sensitive,
        snapshot_schema=asked.use_snapshot_schema,
        statistics=tuple(asked.stats_fields or ()),
    )
    if token.snapshot is None and not is_between:
        return json_response({"status": "completed", "file-scan-tasks": []})
    try:
        return _completed(token, _planned(call, token, loaded.metadata))
    except NotInCatalogError as error:
        raise bad_request(str(error)) from error


def poll_plan(call: Call) -> Response:
    """Return a plan again."""
    token = _token(call, call.path["plan"], "NoSuchPlanIdException")
    return _completed(token, _again(call, token, "NoSuchPlanIdException"))


def cancel_plan(call: Call) -> Response:
    """Forget a plan."""
    token = _token(call, call.path["plan"], "NoSuchPlanIdException")
    if call.catalog in _plans:
        _plans[call.catalog].remove(_key(token))
    return NO_CONTENT


def fetch_tasks(call: Call) -> Response:
    """Return one further page of a plan."""
    token = _token(call, call.request.decoded(FetchTasks).plan_task, "NoSuchPlanTaskException")
    plan = _again(call, msgspec.structs.replace(token, page=0), "NoSuchPlanTaskException")
    if not 0 < token.page < _pages(plan):
        raise _gone("NoSuchPlanTaskException")
    return json_response(_page(plan, token))


def _token(call: Call, text: str, kind: str) -> PlanToken:
    token = PlanToken.parsed(text)
    if token is None or token.table != str(call.catalog.load_table(call.table).uuid):
        raise _gone(kind)
    return token


def _gone(kind: str) -> HttpError:
    return HttpError(404, kind, "No such plan of this table; plan the scan again")


def _again(call: Call, token: PlanToken, kind: str) -> ScanPlan:
    try:
        return _planned(call, token, call.catalog.load_table(call.table).metadata)
    except NotInCatalogError as error:  # its snapshot has expired
        raise _gone(kind) from error


def _planned(call: Call, token: PlanToken, metadata: TableMetadata) -> ScanPlan:
    plans = _plans.setdefault(call.catalog, _Plans())
    key = _key(token)
    plan = plans.get(key)
    if plan is None:
        plan = call.catalog.plan_scan(call.table, _request(token, metadata))
        if _pages(plan) > 1:
            plans.add(key, plan)
    return plan


def _key(token: PlanToken) -> PlanToken:
    """Return a token that can be the key of a dictionary."""
    return msgspec.structs.replace(token, filter=msgspec.json.encode(token.filter).decode())


def _request(token: PlanToken, metadata: TableMetadata) -> ScanRequest:
    schema, target = metadata.schema(), token.end if token.end is not None else token.snapshot
    snapshot = metadata.snapshot_by_id(target) if target is not None else None
    if token.snapshot_schema and snapshot is not None and snapshot.schema_id is not None:
        schema = next((one for one in metadata.schemas if one.schema_id == snapshot.schema_id), schema)
    row_filter = expression_of(token.filter, schema, token.case_sensitive)
    found = ScanRequest(row_filter, token.snapshot, token.start, token.end, token.case_sensitive)
    return replace(found, use_snapshot_schema=token.snapshot_schema)


def _pages(plan: ScanPlan) -> int:
    return -(-len(plan.files) // FILES_PER_PAGE)


def _completed(token: PlanToken, plan: ScanPlan) -> Response:
    """Return the first page, and tasks for the others."""
    text = token.text()
    named = {"plan-id": text} if len(text) <= PLAN_ID_CHARACTERS_MAX else {}
    tasks = [msgspec.structs.replace(token, page=number).text() for number in range(1, _pages(plan))]
    further = {"plan-tasks": tasks} if tasks else {}
    return json_response({"status": "completed", **named, **further, **_page(plan, token)})


def _page(plan: ScanPlan, token: PlanToken) -> dict[str, Any]:
    first = token.page * FILES_PER_PAGE
    files = plan.files[first : first + FILES_PER_PAGE]
    deletes = list({one.file_path: one for planned in files for one in planned.deletes}.values())
    places = {one.file_path: place for place, one in enumerate(deletes)}
    encoder = _FileEncoder(plan.metadata, token)
    page: dict[str, Any] = {"file-scan-tasks": [_task(one, places, encoder) for one in files]}
    if deletes:
        page["delete-files"] = [encoder.json(one) for one in deletes]
    return page


def _task(planned: PlannedFile, places: Mapping[str, int], encoder: "_FileEncoder") -> dict[str, Any]:
    task = {"data-file": encoder.json(planned.file), "residual-filter": expression_json(planned.residual)}
    if planned.deletes:
        task["delete-file-references"] = [places[one.file_path] for one in planned.deletes]
    return task


class _FileEncoder:
    """The JSON of data and delete files."""

    def __init__(self, metadata: TableMetadata, token: PlanToken) -> None:
        self._specs = metadata.specs()
        self._schema = metadata.schema()
        self._fields = _field_ids(self._schema, token.statistics, token.case_sensitive)

    def json(self, file: DataFile) -> dict[str, Any]:
        """Return the JSON of a file, with the statistics that the client asked for."""
        found: dict[str, Any] = {
            "content": CONTENT[file.content],
            "file-path": file.file_path,
            "file-format": file.file_format.value.lower(),
            "spec-id": file.spec_id,
            "partition": self._partition(file, self._specs[file.spec_id]),
            "file-size-in-bytes": file.file_size_in_bytes,
            "record-count": file.record_count,
            "split-offsets": file.split_offsets,
            "equality-ids": file.equality_ids,
            "sort-order-id": file.sort_order_id,
        }
        if file.content == DataFileContent.DATA and self._fields:
            found |= {name.replace("_", "-"): self._map(getattr(file, name)) for name in (*COUNTS, *BOUNDS)}
        return {name: value for name, value in found.items() if value is not None}

    def _partition(self, file: DataFile, spec: PartitionSpec) -> list[Any]:
        kinds: list[Any] = [field.field_type for field in spec.partition_type(self._schema).fields]
        values = [file.partition[place] for place in range(len(kinds))]
        return [None if value is None else to_json(kind, value) for kind, value in zip(kinds, values, strict=True)]

    def _map(self, values: Mapping[int, Any] | None) -> dict[str, list[Any]] | None:
        """Return parallel lists of field ids and values; bounds in hexadecimal, as Iceberg's library writes them."""
        kept = {key: value for key, value in (values or {}).items() if key in self._fields}
        if not kept:
            return None
        plain = [value.hex().upper() if isinstance(value, bytes) else value for value in kept.values()]
        return {"keys": list(kept), "values": plain}


def _field_ids(schema: Schema, names: Sequence[str], case_sensitive: bool) -> frozenset[int]:
    try:
        return frozenset(schema.find_field(name, case_sensitive).field_id for name in names)
    except ValueError as error:
        raise bad_request(f"stats-fields: {error}") from error
