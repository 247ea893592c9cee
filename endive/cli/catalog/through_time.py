"""`endive catalog checkpoint`, `open`, `restore` and `clone`: the whole catalog through time."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.operations.restore import RestoreReport
from endive.catalog.settings import AT
from endive.cli.catalog.arguments import Endpoint, Json, Properties, Url, opened, reach, require_lasting
from endive.cli.catalog.namespaces import tables
from endive.cli.catalog.rendering import print_json, print_rows, say
from endive.cli.catalog.times import duration_ms, iso, shown
from endive.cli.console import asked
from endive.errors import ConfigurationError
from endive.wording import counted

DECLINED_EXIT_CODE = 1
Name = Annotated[str, typer.Argument(metavar="NAME", help="The checkpoint's name.")]


def checkpoint(
    url: Url,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Without one, a list.")] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DURATION", help="It expires after this: `30d`. Else it stays.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Delete it; `maintain` then deletes files of its own.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also delete one that a clone needs.")] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Name the state of all tables at this moment: a consistent point, whose files are kept while it exists.

    Open it with `endive catalog open URL --at NAME`, with `-p endive.at=NAME` in any command, or with the property
    `endive.at` from PyIceberg and Spark; go back to it with `restore`; make a catalog of it with `clone`.

    For example:

    `endive catalog checkpoint s3://bucket/lake before-migration --keep 30d`

    `endive catalog checkpoint s3://bucket/lake`
    """
    if name is None and (drop or keep is not None):
        raise ConfigurationError("endive catalog checkpoint", ["a NAME is missing"])
    lifetime_ms = duration_ms(keep, "--keep") if keep is not None else 0
    with opened(url, endpoint, properties) as catalog:
        if name is not None and drop:
            catalog.delete_checkpoint(name, force)
        elif name is not None:
            catalog.create_checkpoint(name, lifetime_ms)
        found = catalog.checkpoints()
    if as_json:
        print_json([_document(one) for one in found])
    elif name is not None and drop:
        say(f"checkpoint {name} is gone")
    elif name is not None:
        made = next(one for one in found if one.name == name)
        say(f"checkpoint {name} has all tables as of {shown(made.created_unix_ms)} UTC, kept {_kept(made)}")
    else:
        rows = [(one.name, shown(one.created_unix_ms), _kept(one), one.clone_url) for one in found]
        print_rows(("checkpoint", "made (UTC)", "kept", "clone"), rows)


def _kept(one: CheckpointRecord) -> str:
    if one.clone_url:
        return "for its clone"
    return f"until {shown(one.expire_unix_ms)}" if one.expire_unix_ms else "for ever"


def _document(one: CheckpointRecord) -> dict[str, Any]:
    return {
        "name": one.name,
        "created": iso(one.created_unix_ms),
        "expires": iso(one.expire_unix_ms) if one.expire_unix_ms else None,
        "clone": one.clone_url or None,
    }


def open_catalog(
    url: Url,
    at: Annotated[str, typer.Option("--at", metavar="NAME", help="A checkpoint of the catalog.")],
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """List all tables as they were at a checkpoint. Other commands read there with `-p endive.at=NAME`.

    For example:

    `endive catalog open s3://bucket/lake --at before-migration`

    `endive catalog files s3://bucket/lake db.events -p endive.at=before-migration`
    """
    tables(url, None, endpoint, [*(properties or []), f"{AT}={at}"], as_json)


def restore(
    url: Url,
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print the changes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Make all tables and namespaces as they were at a checkpoint, in one commit.

    Tables go on from there: later snapshots stay until they expire. Tables that were created since are dropped, and
    their files stay. The state before becomes a checkpoint for a week, and restoring that one undoes it.

    For example:

    `endive catalog restore s3://bucket/lake before-migration --dry-run`
    """
    with opened(url, endpoint, properties) as catalog:
        would = catalog.restore(name, dry_run=True)
        if not (dry_run or as_json):
            _print(would, "would be")
        if not dry_run and not yes and would and not asked(f"Restore {url} to {name}?"):
            raise typer.Exit(DECLINED_EXIT_CODE)
        report = would if dry_run else catalog.restore(name)
    if as_json:
        print_json({key: value for key, value in asdict(report).items() if key != "written"} | {"dry_run": dry_run})
    elif dry_run:
        _print(report, "would be")
    else:
        say(f"all tables are as they were at {name}; `endive catalog restore {url} {report.undo}` undoes it")


def _print(report: RestoreReport, verb: str) -> None:
    parts = {
        "changed": report.changed,
        "created again": report.created,
        "dropped": report.dropped,
        "renamed": report.renamed,
        "changed, of namespaces": report.namespaces,
        "changed, of views": report.views,
    }
    for what, names in parts.items():
        if names:
            say(f"{verb} {what}: {', '.join(names)}")
    if not report:
        say("nothing has changed since")


def clone(
    url: Url,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where the new catalog goes: a directory or a URL.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="NAME", help="Of a checkpoint; else of all tables as they are now.")
    ] = None,
    warehouse: Annotated[
        str | None, typer.Option(metavar="URL", help="Where its new files go; beside it by default.")
    ] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Make a new catalog with all tables. It shares every data file and can be written, without copying data.

    Neither side deletes files of the other: the source keeps a checkpoint for its clone, listed by `checkpoint`.
    After an interruption repeat the command. When the clone is deleted, `checkpoint --drop --force` releases the files.

    For example:

    `endive catalog clone s3://bucket/lake s3://bucket/what-if --at before-migration`
    """
    require_lasting(target, reach(endpoint, properties))
    with opened(url, endpoint, properties) as catalog:
        done = catalog.clone(target, at, warehouse)
    if as_json:
        print_json(asdict(done))
    else:
        rows = counted(done.rows, "row")
        say(f"{target} has {counted(done.tables, 'table')} ({rows}); {url} keeps their files by {done.checkpoint}")
