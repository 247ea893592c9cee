"""Bodies of requests, as Iceberg's specification has them."""

from typing import Annotated, Any

import msgspec

from endive.catalog.model.names import LEVELS_MAX

Json = dict[str, Any]
Level = Annotated[str, msgspec.Meta(pattern="^[^\x1f]*$")]
"""A name. One with the separator of levels could not be written in a path."""
Levels = Annotated[list[Level], msgspec.Meta(max_length=LEVELS_MAX)]
"""The levels of a namespace; few, since the grants around each of them are looked up."""


class Message(msgspec.Struct, rename="kebab", kw_only=True):
    """A body of a request. Fields that the specification does not know are ignored, as it requires."""


class CreateNamespace(Message):
    """Body of `createNamespace`."""

    namespace: Levels
    properties: dict[str, str] = {}


class UpdateProperties(Message):
    """Body of `updateProperties`."""

    removals: list[str] = []
    updates: dict[str, str] = {}


class CreateTable(Message):
    """Body of `createTable`."""

    name: Level
    schema: Json
    location: str | None = None
    partition_spec: Json | None = None
    write_order: Json | None = None
    stage_create: bool | None = None
    properties: dict[str, str] | None = None


class CreateView(Message):
    """Body of `createView`."""

    name: Level
    schema: Json
    view_version: Json
    location: str | None = None
    properties: dict[str, str] | None = None


class RegisterTable(Message):
    """Body of `registerTable` and `registerView`."""

    name: Level
    metadata_location: str
    overwrite: bool = False


class Name(Message):
    """A table or view."""

    namespace: Levels
    name: Level


class Rename(Message):
    """Body of `renameTable` and `renameView`."""

    source: Name
    destination: Name


class CommitTable(Message):
    """Body of `updateTable` and `replaceView`, and one change of `commitTransaction`."""

    requirements: list[Json] = []
    updates: list[Json] = []
    identifier: Name | None = None


class CommitTransaction(Message):
    """Body of `commitTransaction`."""

    table_changes: list[CommitTable]


class PlanScan(Message):
    """Body of `planTableScan`. `select` and `min-rows-requested` are hints, and change no plan."""

    snapshot_id: int | None = None
    select: list[str] | None = None
    filter: Any = None
    min_rows_requested: int | None = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    stats_fields: list[str] | None = None


class FetchTasks(Message):
    """Body of `fetchScanTasks`."""

    plan_task: str


class SignRequest(Message):
    """Body of `signRequest`: a request to object storage."""

    method: str
    uri: str
    region: str = ""
    headers: dict[str, list[str]] = {}
    body: str | None = None
