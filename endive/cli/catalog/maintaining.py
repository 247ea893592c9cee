"""`endive catalog maintain`: everything that a catalog needs from time to time, in one command."""

import json
import time
from functools import partial
from typing import Annotated, NamedTuple

import typer
from rich.status import Status

from endive.catalog import KVCatalog
from endive.catalog.maintenance.maintain import MaintenanceOptions, MaintenanceReport, TableMaintenance
from endive.catalog.model.names import table_of
from endive.cli.catalog.arguments import Endpoint, Json, Properties, Url, opened, reach
from endive.cli.catalog.compacting import Compaction, add_to, candidates, compacted, expected
from endive.cli.catalog.rendering import print_json, say
from endive.cli.catalog.times import duration_ms, shown
from endive.cli.console import errors, output
from endive.drivers.blocking import unix_ms
from endive.errors import EndiveError
from endive.wording import counted

FAILED_EXIT_CODE = 1


class Compacting(NamedTuple):
    """Which files Spark compacts."""

    files: bool
    delete_files: bool


def maintain(
    url: Url,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Only these tables, and not the store.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print the changes.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Keep running, and do it so often: `10m`.")
    ] = None,
    orphans_older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Delete files that nothing refers to once they are so old.")
    ] = "3d",
    manifests: Annotated[bool, typer.Option(help="Merge small manifests.")] = True,
    compact_files: Annotated[
        bool, typer.Option("--compact-files", help="Let Spark merge small data files (extra `[sql]`).")
    ] = False,
    compact_delete_files: Annotated[
        bool, typer.Option("--compact-delete-files", help="Small position delete files, too.")
    ] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Expire snapshots, delete old files and orphans, merge small manifests, compact the store.

    Each table's own properties decide: `history.expire.max-snapshot-age-ms` (5 days),
    `history.expire.min-snapshots-to-keep` (1), `history.expire.max-ref-age-ms`, `gc.enabled`,
    `commit.manifest.min-count-to-merge` (100). Safe beside writers, beside another maintenance, and to be stopped at
    any moment.

    With `--compact-files` Spark SQL runs Iceberg's `rewrite_data_files` first, for tables with data files much smaller
    or larger than `write.target-file-size-bytes` (512 MB): at least five in a partition, or enough to fill one.

    For cron: one line of summary; exit code 0, or 1 if something could not be done. The rest was done, and the next
    run tries again.

    For example:

    `endive catalog maintain s3://bucket/lake --dry-run`

    `endive catalog maintain s3://bucket/lake --every 10m`
    """
    age_ms = duration_ms(orphans_older_than, "--orphans-older-than")
    pause_ms = duration_ms(every, "--every") if every is not None else None
    options = MaintenanceOptions(dry_run, age_ms, manifests, tuple(map(table_of, names or ())))
    compacting = Compacting(compact_files or compact_delete_files, compact_delete_files)
    while True:
        began_ms = unix_ms()
        failed = _round(url, endpoint, properties, options, compacting, as_json, pause_ms is not None)
        if pause_ms is None:
            break
        time.sleep(max(0, began_ms + pause_ms - unix_ms()) / 1000)
    if failed:
        raise typer.Exit(FAILED_EXIT_CODE)


def _round(
    url: str,
    endpoint: str | None,
    properties: list[str] | None,
    options: MaintenanceOptions,
    compacting: Compacting,
    as_json: bool,
    repeats: bool,
) -> bool:
    """Maintain once, and print it; return whether something failed. If it `repeats`, an error does not end it."""
    try:
        done = _compacted(url, endpoint, properties, options, compacting)
        with opened(url, endpoint, properties) as catalog:
            report = _maintained(catalog, options)
        add_to(report, done)
    except EndiveError as error:
        if not repeats:
            raise
        errors.print(f"[red]error:[/] {errors.escape(str(error))}; trying again later", soft_wrap=True)
        return True
    if as_json and repeats:
        output.out(json.dumps(report.document()), highlight=False)
    elif as_json:
        print_json(report.document())
    else:
        _print(report, repeats)
    return report.has_failed


def _maintained(catalog: KVCatalog, options: MaintenanceOptions) -> MaintenanceReport:
    with errors.status("maintaining") as status:
        return catalog.maintain(options, lambda name: status.update(f"maintaining {errors.escape(name)}"))


def _compacted(
    url: str,
    endpoint: str | None,
    properties: list[str] | None,
    options: MaintenanceOptions,
    compacting: Compacting,
) -> dict[str, Compaction]:
    """Compact the files of tables that need it; in a dry run, only find them."""
    if not compacting.files:
        return {}
    with opened(url, endpoint, properties) as catalog:
        found = candidates(catalog, options.tables, compacting.delete_files)
    if options.dry_run or not found:
        return expected(found, compacting.delete_files)
    with errors.status("compacting") as status:
        tell = partial(_update, status)
        return compacted(url, reach(endpoint, properties), found, compacting.delete_files, tell)


def _update(status: Status, text: str) -> None:
    status.update(errors.escape(text))


def _print(report: MaintenanceReport, repeats: bool) -> None:
    """Print the changes of each table, errors, and a line of summary."""
    for one in report.tables:
        line = _line(one, report.dry_run)
        if line:
            say(f"{one.table}: {line}")
        if one.error:
            errors.print(f"[red]error:[/] {errors.escape(f'{one.table}: {one.error}')}", soft_wrap=True)
    if report.error:
        errors.print(f"[red]error:[/] the store: {errors.escape(report.error)}", soft_wrap=True)
    failed = sum(bool(one.error) for one in report.tables) + bool(report.error)
    parts = [
        f"{'would maintain' if report.dry_run else 'maintained'} {counted(len(report.tables), 'table')}",
        f"{counted(report.total('snapshots'), 'snapshot')} expired",
        f"{counted(report.total('files') + report.total('orphans'), 'file')} deleted",
        f"{counted(sum(bool(one.manifests_before) for one in report.tables), 'table')} with manifests merged",
        f"{counted(report.wal_entries, 'log entry')} compacted",
        counted(failed, "failure"),
    ]
    compacted_files = report.total("data_files_before")
    if compacted_files:
        parts.insert(1, f"{counted(compacted_files, 'data file')} {'to compact' if report.dry_run else 'compacted'}")
    say((f"{shown(unix_ms())} " if repeats else "") + "; ".join(parts))


def _line(one: TableMaintenance, dry_run: bool) -> str:
    """Return the changes of a table in words; an empty text if there are none."""
    parts = []
    if one.snapshots:
        parts.append(f"{counted(one.snapshots, 'snapshot')} and {counted(one.files, 'file')} of theirs")
    if one.refs:
        parts.append(f"past their age: {', '.join(one.refs)}")
    if one.orphans:
        parts.append(f"{counted(one.orphans, 'orphan')}, {one.metadata_files} of them old metadata files")
    if one.manifests_before:
        parts.append(
            f"{one.manifests_before} manifests {'would become' if dry_run else 'became'} {one.manifests_after}"
        )
    for kind, before, after in (
        ("data", one.data_files_before, one.data_files_after),
        ("delete", one.delete_files_before, one.delete_files_after),
    ):
        if before and dry_run:
            parts.append(f"{counted(before, f'{kind} file')} would be compacted")
        elif before:
            parts.append(f"{counted(before, f'{kind} file')} became {after}")
    if one.skipped:
        parts.append(f"files are left alone: {one.skipped}")
    return "; ".join(parts)
