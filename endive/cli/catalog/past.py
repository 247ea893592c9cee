"""`endive catalog history`, `rollback`, `tag`, `branch` and `expire`: a table's past."""

from typing import Annotated, Any

import typer
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from endive.catalog import KVCatalog, LoadedTable
from endive.catalog.maintenance.expiry import ExpiredSnapshots
from endive.catalog.maintenance.purge import require_gc_enabled
from endive.catalog.maintenance.retention import expiring
from endive.catalog.operations.refs import ancestors, is_ancestor, snapshot_at, snapshot_by_id, snapshot_by_ref
from endive.cli.catalog.arguments import Endpoint, Json, Properties, TableName, Url, opened
from endive.cli.catalog.rendering import count, kept, operation, print_json, print_rows, refs_at, say, snapshot_document
from endive.cli.catalog.times import duration_ms, iso, limit_ms, moment_ms, shown
from endive.drivers.blocking import unix_ms
from endive.errors import ConfigurationError
from endive.wording import counted

SnapshotId = Annotated[int | None, typer.Option("--snapshot", metavar="ID", help="A snapshot, by its id.")]
Moment = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="The snapshot that was current then: `2026-03-01`, `2026-03-01T12:00Z`."),
]
Ref = Annotated[str | None, typer.Option("--ref", metavar="NAME", help="A snapshot, by a branch or tag.")]


def chosen(metadata: TableMetadata, snapshot_id: int | None, at: str | None, ref: str | None) -> Snapshot | None:
    """Return the snapshot that the options mean; None if they mean none."""
    if sum(option is not None for option in (snapshot_id, at, ref)) > 1:
        raise ConfigurationError("which snapshot", ["--snapshot, --at or --ref, one of them"])
    if snapshot_id is not None:
        return snapshot_by_id(metadata, snapshot_id)
    if at is not None:
        return snapshot_at(metadata, moment_ms(at, "--at"))
    return snapshot_by_ref(metadata, ref) if ref is not None else None


def history(
    url: Url, name: TableName, endpoint: Endpoint = None, properties: Properties = None, as_json: Json = False
) -> None:
    """List a table's snapshots, newest first, with their changes and the branches and tags that point to them.

    A star marks ancestors of the current snapshot; the others belong to other branches, or were rolled back.

    For example:

    `endive catalog history s3://bucket/lake db.events`
    """
    with opened(url, endpoint, properties) as catalog:
        metadata = catalog.load_table(name).metadata
    current = {one.snapshot_id for one in ancestors(metadata, metadata.current_snapshot_id)}
    if as_json:
        log = [{"snapshot_id": one.snapshot_id, "timestamp": iso(one.timestamp_ms)} for one in metadata.snapshot_log]
        documents = [
            snapshot_document(metadata, one) | {"in_current_state": one.snapshot_id in current}
            for one in metadata.snapshots
        ]
        print_json({"table": name, "snapshots": documents, "became_current": log})
        return
    rows = [_line(metadata, one, one.snapshot_id in current) for one in reversed(metadata.snapshots)]
    headings = ("", "snapshot", "made (UTC)", "operation", "rows added", "rows deleted", "rows", "files", "refs")
    print_rows(headings, rows, numbers=("rows added", "rows deleted", "rows", "files"))


def _line(metadata: TableMetadata, one: Snapshot, is_current: bool) -> tuple[object, ...]:
    figures = ("added-records", "deleted-records", "total-records", "total-data-files")
    return (
        "*" if is_current else " ",
        str(one.snapshot_id),
        shown(one.timestamp_ms),
        operation(one),
        *(count(one, figure) for figure in figures),
        ", ".join(refs_at(metadata, one.snapshot_id)),
    )


def rollback(
    url: Url,
    name: TableName,
    snapshot_id: SnapshotId = None,
    at: Moment = None,
    ref: Ref = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also to a snapshot that is not an ancestor of the current one.")
    ] = False,
    any_snapshot: Annotated[bool, typer.Option("--any", hidden=True, help="Former name of `--force`.")] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Make an earlier snapshot of a table current. Later snapshots stay until they expire.

    For example:

    `endive catalog rollback s3://bucket/lake db.events --at 2026-03-01T12:00:00+01:00`
    """
    with opened(url, endpoint, properties, table=name) as catalog:
        before = catalog.load_table(name)
        target = chosen(before.metadata, snapshot_id, at, ref)
        if target is None:
            raise ConfigurationError("endive catalog rollback", ["to where? say --snapshot, --at or --ref"])
        force = force or any_snapshot
        if not force and not is_ancestor(before.metadata, target.snapshot_id):
            problem = f"snapshot {target.snapshot_id} is not an ancestor of the current snapshot; use --force to set it"
            raise ConfigurationError(name, [problem])
        change = catalog.set_current_snapshot if force else catalog.roll_back
        change(name, target.snapshot_id)
    if as_json:
        print_json({"table": name, "from": before.metadata.current_snapshot_id, "to": target.snapshot_id})
    else:
        say(f"{name} is as it was at {shown(target.timestamp_ms)}: snapshot {target.snapshot_id}")


RefName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Without one, a list.")]
Keep = Annotated[
    str | None,
    typer.Option("--keep", metavar="DURATION", help="`expire` removes it once its snapshot is older: `30d`."),
]
Drop = Annotated[bool, typer.Option("--drop", help="Remove it; snapshots stay until they expire.")]


def tag(
    url: Url,
    name: TableName,
    tag_name: RefName = None,
    snapshot_id: SnapshotId = None,
    at: Moment = None,
    keep: Keep = None,
    drop: Drop = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Name a snapshot: the current one, or another. A tagged snapshot does not expire; with `--keep`, not so soon.

    For example:

    `endive catalog tag s3://bucket/lake db.events end-of-2025 --at 2026-01-01`
    """
    kind = SnapshotRefType.TAG
    with opened(url, endpoint, properties, table=name) as catalog:
        table = _changed_ref(catalog, name, tag_name, kind, (snapshot_id, at), keep, drop)
    _print_refs(table, name, tag_name, kind, drop, as_json)


def branch(
    url: Url,
    name: TableName,
    branch_name: RefName = None,
    snapshot_id: SnapshotId = None,
    at: Moment = None,
    keep: Keep = None,
    drop: Drop = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Begin a branch at a snapshot: the current one, or another. Writers can commit to it beside `main`.

    For example:

    `endive catalog branch s3://bucket/lake db.events trial`

    `endive catalog branch s3://bucket/lake db.events trial --drop`
    """
    kind = SnapshotRefType.BRANCH
    with opened(url, endpoint, properties, table=name) as catalog:
        table = _changed_ref(catalog, name, branch_name, kind, (snapshot_id, at), keep, drop)
    _print_refs(table, name, branch_name, kind, drop, as_json)


def _changed_ref(
    catalog: KVCatalog,
    name: str,
    ref: str | None,
    kind: SnapshotRefType,
    where: tuple[int | None, str | None],
    keep: str | None,
    drop: bool,
) -> LoadedTable:
    """Create or drop a branch or tag if one is named; return the table."""
    table = catalog.load_table(name)
    target = chosen(table.metadata, *where, None)
    if ref is None:
        if drop or keep is not None or target is not None:
            raise ConfigurationError(f"endive catalog {kind.value}", ["a NAME is missing"])
        return table
    if drop:
        snapshot_by_ref(table.metadata, ref)
        found = table.metadata.refs[ref].snapshot_ref_type
        if found != kind:
            raise ConfigurationError(ref, [f"it is a {found.value}; `endive catalog {found.value}` drops it"])
        return catalog.remove_ref(name, ref)
    make = catalog.create_tag if kind == SnapshotRefType.TAG else catalog.create_branch
    keep_ms = duration_ms(keep, "--keep") if keep is not None else None
    return make(name, ref, target.snapshot_id if target is not None else None, keep_ms)


def _print_refs(
    table: LoadedTable, name: str, ref: str | None, kind: SnapshotRefType, drop: bool, as_json: bool
) -> None:
    found = {key: one for key, one in sorted(table.metadata.refs.items()) if one.snapshot_ref_type == kind}
    documents: list[dict[str, Any]] = [
        {"name": key, "kind": kind.value, "snapshot_id": one.snapshot_id, "max_ref_age_ms": one.max_ref_age_ms}
        for key, one in found.items()
    ]
    if as_json:
        print_json(documents)
    elif ref is not None:
        say(f"{kind.value} {ref} of {name} {'is gone' if drop else _at(found[ref])}")
    else:
        rows = [(key, str(one.snapshot_id), kept(one)) for key, one in found.items()]
        print_rows((kind.value, "snapshot", "kept"), rows)


def _at(ref: SnapshotRef) -> str:
    place = f"is at snapshot {ref.snapshot_id}"
    return place if ref.max_ref_age_ms is None else f"{place}, kept {kept(ref)}"


def expire(
    url: Url,
    name: TableName,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Snapshots older than this: `7d`, `12h`, or a moment.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Keep at least so many of every branch.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the snapshots that would be removed.")] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Remove old snapshots, then delete the files that no other snapshot needs.

    Snapshots that a branch or tag points to are kept; a branch or tag that is past its own `--keep` is removed first.
    Without options the table's properties decide (`history.expire.max-snapshot-age-ms`,
    `history.expire.min-snapshots-to-keep`), else 5 days and one snapshot. Reads of a removed snapshot fail.

    For example:

    `endive catalog expire s3://bucket/lake db.events --older-than 7d --keep 3`
    """
    limit = limit_ms(older_than, unix_ms(), "--older-than") if older_than is not None else None
    with opened(url, endpoint, properties) as catalog:
        table = catalog.load_table(name)
        require_gc_enabled(table.identifier, table.metadata)
        if dry_run:
            would = expiring(table.metadata, catalog.now_ms(), limit, keep)
            done = ExpiredSnapshots(would.snapshot_ids, (), would.refs)
        else:
            done = catalog.expire_snapshots(name, limit, keep)
    ids, files = list(done.snapshot_ids), list(done.deleted_files)
    if as_json:
        document = {"table": name, "dry_run": dry_run, "snapshot_ids": ids}
        print_json(document | {"refs": list(done.refs), "deleted_files": files})
        return
    snapshots = f"{len(ids)} of {counted(len(table.metadata.snapshots), 'snapshot')}"
    went = "would go" if dry_run else f"gone, and {counted(len(files), 'file')} with them"
    say(f"{name}: {snapshots} {went}")
    if done.refs:
        say(f"past their age, and {'would go' if dry_run else 'gone'}: {', '.join(done.refs)}")
    if dry_run and ids:
        print_rows(("snapshot", "made (UTC)"), [_expiring(table.metadata, one) for one in ids])


def _expiring(metadata: TableMetadata, snapshot_id: int) -> tuple[str, str]:
    return str(snapshot_id), shown(snapshot_by_id(metadata, snapshot_id).timestamp_ms)
