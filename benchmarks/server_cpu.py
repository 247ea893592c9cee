"""CPU time of the parts of a REST commit that are the server's own: decoding its request, encoding its answer.

Beside them the parts that PyIceberg's models would do: validating updates, and encoding the whole metadata.
"""

import json
import time
from collections.abc import Callable
from uuid import UUID

import msgspec
from pydantic import BaseModel
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from benchmarks.catalog_load import SCHEMA
from endive.catalog.model.catalog_records import TableRecord
from endive.server.changes import change_of
from endive.server.http import json_response
from endive.server.messages import CommitTable
from endive.server.metadata import metadata_json

SNAPSHOTS = (1, 100, 2000)
ROUNDS = 3
NAME = ("db", "t")


def snapshot(number: int) -> Snapshot:
    """Return the snapshot of an append."""
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=number - 1 or None,
        sequence_number=number,
        timestamp_ms=1_700_000_000_000 + number,
        manifest_list=f"s3://bucket/lake/db/t/metadata/snap-{number}.avro",
        summary=Summary(Operation.APPEND, **{"added-records": "10", "total-records": str(10 * number)}),
        schema_id=0,
    )


def table(snapshots: int) -> TableMetadata:
    """Return a table with as many snapshots."""
    new = new_table_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://bucket/t", {}, UUID(int=1, version=4)
    )
    past = [snapshot(number) for number in range(1, snapshots + 1)]
    log = [SnapshotLogEntry(snapshot_id=one.snapshot_id, timestamp_ms=one.timestamp_ms) for one in past]
    return new.model_copy(update={"snapshots": past, "snapshot_log": log})


def body_of(*updates: object) -> bytes:
    """Return the body of a commit to a table."""
    requirements = [
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
        {"type": "assert-table-uuid", "uuid": str(UUID(int=1, version=4))},
    ]
    return json.dumps({"requirements": requirements, "updates": updates}).encode()


def cpu_us(action: Callable[[], object], count: int) -> float:
    """Return the CPU time of an action in microseconds: the least of some rounds."""
    action()
    found = []
    for _ in range(ROUNDS):
        began_s = time.process_time()
        for _ in range(count):
            action()
        found.append((time.process_time() - began_s) / count * 1e6)
    return round(min(found), 1)


def measure_answers(count: int) -> dict[str, object]:
    """Return the microseconds of each part."""
    answers = []
    for snapshots in SNAPSHOTS:
        metadata = table(snapshots)
        row = {
            "snapshots": snapshots,
            "answer_us": cpu_us(lambda one=metadata: json_response({"metadata": metadata_json(one)}), count),  # type: ignore[misc]
            "by_models_us": cpu_us(lambda one=metadata: BaseModel.model_dump_json(one, by_alias=True), 5),  # type: ignore[misc]
        }
        print(row, flush=True)
        answers.append(row)
    append = body_of(
        {"action": "add-snapshot", "snapshot": json.loads(snapshot(5).model_dump_json())},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5},
    )
    requests = {"append": append, "properties": body_of({"action": "set-properties", "updates": {"number": "1"}})}
    found: dict[str, object] = {"answers": answers}
    for name, body in requests.items():
        asked = msgspec.json.decode(body, type=CommitTable)
        found[f"decode_{name}_us"] = cpu_us(lambda one=body: msgspec.json.decode(one, type=CommitTable), count)  # type: ignore[misc]
        found[f"updates_{name}_us"] = cpu_us(lambda one=asked: change_of(NAME, one), count)  # type: ignore[misc]
    record = TableRecord(NAME, 1, table(0), "s3://bucket/t/metadata/1.json", 1)
    found["encode_record_us"] = cpu_us(record.stored, count)
    print({name: value for name, value in found.items() if name != "answers"}, flush=True)
    return found
