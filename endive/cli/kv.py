"""`endive kv`: the key-value store from the command line. Reading does not disturb a writer."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.table import Table

from endive.cli.console import errors, output
from endive.drivers.blocking import BlockingDriver
from endive.errors import ConfigurationError, IntentionExpiredError, OutcomeUnknownError, StoreNotFoundError
from endive.kv import Reader, Store, StoreOptions
from endive.kv import clone as clone_of
from endive.kv.log.helping import collect_intentions, result_of
from endive.kv.log.intentions import PREFIX as INTENTIONS
from endive.kv.log.intentions import Intention, decode_intention, is_name
from endive.kv.log.opening import require_newest
from endive.kv.log.state import StoreState, newest_state
from endive.kv.log.wal import WAL
from endive.kv.maintenance.background import collect_now, compactions
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.claim import claim_maintenance, release_maintenance
from endive.kv.manifest_format import MANIFESTS, fields_of
from endive.kv.sst.format import decode_footer
from endive.kv.sst.reading import NoCache
from endive.kv.views import create_checkpoint, delete_checkpoint, refresh_checkpoint
from endive.logs import ROOT, LogForm, show_logs
from endive.objects import ObjectStore, open_objects
from endive.objects.two_phase import TwoPhaseStore
from endive.protocol.requests import Now
from endive.protocol.sequenced import newest
from endive.wording import counted, utc

app = typer.Typer(no_args_is_help=True, help="The key-value store that needs nothing but a bucket.")
checkpoint_app = typer.Typer(no_args_is_help=True, help="Checkpoints: states of the store that stay readable.")
app.add_typer(checkpoint_app, name="checkpoint")

FINDINGS_EXIT = 1

Url = Annotated[str, typer.Argument(metavar="URL", help="`file:///dir` or a directory, `s3://…`, `gs://…`, `az://…`.")]
Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", envvar="ENDIVE_ENDPOINT", help="Address of an S3-compatible server or emulator."),
]
Records = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="ENDIVE_RECORDS",
        help="For object stores without conditional writes: `sqlite:///file`, `postgresql://…`, `mysql://…` or "
        "`dynamodb://table`.",
    ),
]
Hex = Annotated[bool, typer.Option("--hex", help="Keys and values are hexadecimal digits.")]
At = Annotated[str | None, typer.Option("--at", metavar="CHECKPOINT", help="Read at a checkpoint, by id or name.")]

ParallelWrites = Annotated[
    int,
    typer.Option(
        "--parallel-writes",
        min=1,
        max=64,
        help="WAL entries that the writer may have in flight; kept in the store.",
    ),
]


@app.callback()
def _kv(
    context: typer.Context,
    log: Annotated[
        LogForm | None, typer.Option(help="Write events to standard error: as text, or as one JSON object a line.")
    ] = None,
) -> None:
    if log is not None:
        handler = show_logs(log, sys.stderr)
        context.call_on_close(lambda: logging.getLogger(ROOT).removeHandler(handler))


def _bytes(text: str, is_hex: bool) -> bytes:
    try:
        return bytes.fromhex(text) if is_hex else text.encode()
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number of hexadecimal digits") from error


def _text(data: bytes, is_hex: bool) -> str:
    return data.hex() if is_hex else data.decode("utf-8", "backslashreplace")


def _place(url: str, endpoint: str | None, records: str | None) -> ObjectStore:
    """Return the objects at a URL that outlives the command."""
    objects = open_objects(url, endpoint=endpoint, records=records)
    if not objects.capabilities.shared:
        raise ConfigurationError(url, ["it would be gone when the command ends; give a directory or a bucket"])
    return objects


@contextmanager
def _driver(url: str, endpoint: str | None, records: str | None) -> Iterator[BlockingDriver]:
    """Drive protocols on a store that exists."""
    driver = BlockingDriver(_place(url, endpoint, records))
    try:
        if driver.run(newest(MANIFESTS)) is None:
            raise StoreNotFoundError(url)
        yield driver
    finally:
        driver.close()


@contextmanager
def _reader(url: str, endpoint: str | None, records: str | None, at: str | None = None) -> Iterator[Reader]:
    objects: ObjectStore = _place(url, endpoint, records)
    try:
        reader = Reader(objects, checkpoint=at)
    except StoreNotFoundError as error:
        raise StoreNotFoundError(url) from error
    with reader:
        yield reader


@app.command("open")
def open_store(
    url: Url, parallel_writes: ParallelWrites = 1, endpoint: Endpoint = None, records: Records = None
) -> None:
    """Open the store for writing and close it again: creates it, or fences the writer that has it open.

    For example:

    `endive kv open file:///tmp/store`
    """
    options = StoreOptions(max_parallel_writes=parallel_writes)
    with Store(_place(url, endpoint, records), options=options) as store:
        output.print(f"epoch {store.epoch}, next WAL entry {store.wal_end + 1}")


@app.command()
def put(
    url: Url, key: str, value: str, is_hex: Hex = False, endpoint: Endpoint = None, records: Records = None
) -> None:
    """Set a key, durably. Other processes may put at the same time; a writer that has the store exclusively is fenced.

    Now and then a put also compacts the log and collects garbage, after it has set the key, so that the next ones stay
    as fast.
    """
    with Store(_place(url, endpoint, records), "shared") as store:
        store.put(_bytes(key, is_hex), _bytes(value, is_hex))


@app.command()
def delete(url: Url, key: str, is_hex: Hex = False, endpoint: Endpoint = None, records: Records = None) -> None:
    """Remove a key, durably, as `put` sets it; there must be a store."""
    with _driver(url, endpoint, records):
        pass  # a store that is not there has nothing to remove, and is not made for it
    with Store(_place(url, endpoint, records), "shared") as store:
        store.delete(_bytes(key, is_hex))


@app.command("get")
def get_value(
    url: Url, key: str, at: At = None, is_hex: Hex = False, endpoint: Endpoint = None, records: Records = None
) -> None:
    """Print the value of a key; exit code 1 if it has none. Reads beside a writer without disturbing it."""
    with _reader(url, endpoint, records, at) as reader:
        value = reader.get(_bytes(key, is_hex))
    if value is None:
        errors.print(f"no value for {errors.escape(key)}")
        raise typer.Exit(1)
    sys.stdout.write(_text(value, is_hex) + "\n")


@app.command()
def scan(
    url: Url,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    start: Annotated[str | None, typer.Option(help="From this key on.")] = None,
    end: Annotated[str | None, typer.Option(help="Up to, but without, this key.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Not more rows than this.")] = None,
    at: At = None,
    is_hex: Hex = False,
    endpoint: Endpoint = None,
    records: Records = None,
) -> None:
    """Print keys and values in order, a row a line with a tab between."""
    limits = {name: _bytes(text, is_hex) for name, text in (("start", start), ("end", end), ("prefix", prefix)) if text}
    with _reader(url, endpoint, records, at) as reader:
        for number, (key, value) in enumerate(reader.scan(**limits), 1):
            sys.stdout.write(f"{_text(key, is_hex)}\t{_text(value, is_hex)}\n")
            if number == limit:
                return


@app.command()
def stats(url: Url, endpoint: Endpoint = None, records: Records = None) -> None:
    """Print sizes and counts, as the newest manifest and the WAL have them."""
    with _reader(url, endpoint, records) as reader:
        manifest = reader.manifest.value
        metrics = {
            "manifest": reader.manifest.number,
            "writer epoch": manifest.writer_epoch,
            "shared epoch": manifest.shared_epoch,
            "compactor epoch": manifest.compactor_epoch,
            "WAL entries not in the levels": reader.wal_end - manifest.wal_id_last_compacted,
            "runs": len(manifest.runs),
            "SSTs": len(manifest.sst_ids()),
            "rows in the levels, with repeats": sum(sst.rows for run in manifest.runs for sst in run.ssts),
            "bytes in the levels": sum(run.size_bytes for run in manifest.runs),
            "checkpoints": len(manifest.checkpoints),
        }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in metrics.items():
        table.add_row(name, f"{value:,}")
    output.print(table)


@app.command()
def manifest(
    url: Url,
    number: Annotated[int | None, typer.Option("--id", help="This manifest instead of the newest one.")] = None,
    endpoint: Endpoint = None,
    records: Records = None,
) -> None:
    """Print a manifest as JSON; keys in hexadecimal."""
    with _driver(url, endpoint, records) as driver:
        found = driver.run(newest(MANIFESTS))
        if number is not None:
            path = MANIFESTS.path_of(number)
            body = driver.objects.get(path)
            if body is None:
                raise typer.BadParameter(f"{url} has no manifest {number}")
            value = MANIFESTS.decode(path, body)
        elif found is not None:
            number, value = found.number, found.value
    output.print_json(json.dumps({"id": number} | fields_of(value)))


@app.command()
def wal(url: Url, endpoint: Endpoint = None, records: Records = None) -> None:
    """List the WAL entries that exist: number, epoch, rows. Fences have no rows."""
    table = Table(box=None, pad_edge=False)
    for heading in ("entry", "epoch", "rows", "bytes", "sequence numbers"):
        table.add_column(heading, justify="right")
    with _driver(url, endpoint, records) as driver:
        for info in driver.objects.list(WAL.prefix):
            number, body = WAL.number_of(info.path), driver.objects.get(info.path)
            if number is None or body is None:
                continue
            footer = decode_footer(info.path, body)
            seqs = "fence" if footer.is_fence else f"{footer.seq_first} to {footer.seq_last}"
            table.add_row(str(number), str(footer.epoch), str(footer.rows), str(info.size_bytes), seqs)
    output.print(table)


@app.command()
def intentions(url: Url, endpoint: Endpoint = None, records: Records = None) -> None:
    """List intentions: calls that a process has announced, and that any process may carry out.

    `pending`: not carried out yet. `decided` and `expired` ones are deleted by their owners or the garbage collector.
    """
    table = Table(box=None, pad_edge=False)
    for heading in ("position", "id", "state", "age s", "writer", "calls", "bytes"):
        table.add_column(heading, justify="right" if heading in ("position", "age s", "bytes") else "left")
    with _driver(url, endpoint, records) as driver:
        state = driver.run(newest_state())
        if state is None:
            raise StoreNotFoundError(url)
        for info in driver.objects.list(INTENTIONS):
            name, body = info.path.removeprefix(INTENTIONS), driver.objects.get(info.path)
            if body is None or not is_name(name):
                continue
            found = decode_intention(name, body)
            age_s = max(driver.answer(Now()) - info.modified_unix_ms, 0) / 1000
            position, _, intention_id = name.partition("-")
            calls = Counter(map(str, found.calls))
            table.add_row(
                position.lstrip("0") or "0",
                intention_id,
                _state_of(driver, found, state),
                f"{age_s:,.1f}",
                found.writer,
                found.problem or ", ".join(f"{count} {call}" for call, count in calls.items()),
                str(info.size_bytes),
            )
    output.print(table)


def _state_of(driver: BlockingDriver, intention: Intention, state: StoreState) -> str:
    try:
        decided = driver.run(result_of(intention, state, NoCache()))
    except IntentionExpiredError:
        return "expired"
    return "pending" if decided is None else f"decided by {decided.by}"


@app.command()
def compact(
    url: Url,
    everything: Annotated[bool, typer.Option("--all", help="Merge all levels into one run.")] = False,
    endpoint: Endpoint = None,
    records: Records = None,
) -> None:
    """Merge the WAL into the levels, and levels that are full. An active compactor elsewhere is fenced."""
    with _driver(url, endpoint, records) as driver:
        claim = driver.run(claim_maintenance(is_forced=True))
        if claim is None:
            raise OutcomeUnknownError(url)
        entries = rows = merged = 0
        for done in compactions(driver, claim.epoch, everything):
            entries, merged, rows = entries + done.entries, merged + done.runs, rows + done.rows
        driver.run(release_maintenance(claim))
    done_so = (counted(entries, "WAL entry"), counted(merged, "run"), counted(rows, "row"))
    output.print("{} into the levels, {} merged, {} written".format(*done_so))


@app.command()
def collect(
    url: Url,
    retention_s: Annotated[
        int, typer.Option("--retention-s", min=0, help="How long superseded manifests stay without a checkpoint.")
    ] = 900,
    endpoint: Endpoint = None,
    records: Records = None,
) -> None:
    """Run the garbage collector. Safe beside writers, compactors and other garbage collectors."""
    with _driver(url, endpoint, records) as driver:
        done = collect_now(driver, retention_s * 1000)
        closed = driver.run(collect_intentions(NoCache()))
    deleted = {
        "manifest": done.manifests,
        "WAL entry": done.wal_entries,
        "SST": done.ssts,
        "foreign object": done.foreign,
        "intention": closed,
    }
    output.print("deleted " + ", ".join(counted(len(gone), what) for what, gone in deleted.items()))


@app.command()
def check(url: Url, endpoint: Endpoint = None, records: Records = None) -> None:
    """Check every checksum, reference and invariant. Exit code 1 if there are findings."""
    with _driver(url, endpoint, records) as driver:
        report = driver.run(check_store())
    counts = {"manifest": report.manifests, "WAL entry": report.wal_entries, "SST": report.ssts, "row": report.rows}
    checked = ", ".join(counted(count, what) for what, count in counts.items())
    for finding in report.findings:
        output.print(f"[red]error:[/] {output.escape(str(finding))}", soft_wrap=True)
    garbage = counted(report.garbage, "SST")
    output.print(f"checked {checked}; {counted(len(report.findings), 'finding')}; {garbage} for the garbage collector")
    if report.findings:
        raise typer.Exit(FINDINGS_EXIT)


@app.command()
def recover(
    url: Url,
    release_lost: Annotated[
        bool,
        typer.Option("--release-lost", help="Remove the records of lost creates. Stop all writers of the store first."),
    ] = False,
    endpoint: Endpoint = None,
    records: Records = None,
) -> None:
    """Finish the creates of crashed writers, in a store whose creates are decided by a record store.

    A create is lost if its writer crashed before it was acknowledged and its temporary object is gone; its record
    blocks further writes. Exit code 1 if there are lost creates that were not released.
    """
    objects = _place(url, endpoint, records)
    if not isinstance(objects, TwoPhaseStore):
        raise ConfigurationError(url, ["a store without a record store has nothing to recover; or name --records"])
    done = objects.recover(release_lost=release_lost)
    for path in done.lost:
        output.print(f"[red]lost:[/] {output.escape(path)}" + (", released" if release_lost else ""), soft_wrap=True)
    output.print(
        f"{counted(len(done.copied), 'create')} finished, {counted(len(done.orphans), 'temporary object')} deleted, "
        f"{len(done.lost)} lost"
    )
    if done.lost and not release_lost:
        raise typer.Exit(FINDINGS_EXIT)


@app.command()
def clone(
    source: Url,
    destination: Annotated[
        str, typer.Argument(metavar="CLONE", help="Where to make the clone; no store may be there.")
    ],
    at: At = None,
    endpoint: Endpoint = None,
) -> None:
    """Make a new store that starts with the rows of another, and shares its files instead of copying them.

    Both can be written independently. The source keeps a checkpoint, named `endive:clone URL`, until the clone needs no
    file of it any more; `endive kv compact --all` and `collect` on the clone bring that about.

    For example:

    `endive kv clone file:///tmp/store file:///tmp/what-if`
    """
    with _driver(source, endpoint, None):
        pass  # an error about the source names it
    manifest = clone_of(_place(source, endpoint, None), _place(destination, endpoint, None), at)
    output.print(f"{counted(len(manifest.sst_ids()), 'SST')}, {counted(len(manifest.parents), 'store')} shared with")


@checkpoint_app.command("create")
def checkpoint_create(
    url: Url,
    lifetime_s: Annotated[int, typer.Option("--lifetime-s", min=0, help="Expires after this; 0: never.")] = 3600,
    name: Annotated[str, typer.Option(help="A name to find it by.")] = "",
    source: Annotated[
        str | None, typer.Option("--from", metavar="CHECKPOINT", help="Of this checkpoint's state, not of the present.")
    ] = None,
    endpoint: Endpoint = None,
    records: Records = None,
) -> None:
    """Create a checkpoint of the present state, or of another checkpoint, and print its id."""
    with _driver(url, endpoint, records) as driver:
        output.print(driver.run(create_checkpoint(lifetime_s, name, source)).id)


@checkpoint_app.command("list")
def checkpoint_list(url: Url, endpoint: Endpoint = None, records: Records = None) -> None:
    """List the checkpoints."""
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "name", "manifest", "expires (UTC)"):
        table.add_column(heading)
    with _reader(url, endpoint, records) as reader:
        for each in reader.manifest.value.checkpoints:
            expires = utc(each.expire_unix_s * 1000) if each.expire_unix_s else "never"
            table.add_row(each.id, each.name, str(each.manifest_id), expires)
    output.print(table)


@checkpoint_app.command("refresh")
@checkpoint_app.command("prolong", hidden=True)
def checkpoint_refresh(
    url: Url,
    checkpoint_id: str,
    lifetime_s: Annotated[int, typer.Option("--lifetime-s", min=0, help="From now; 0: never expires.")] = 3600,
    endpoint: Endpoint = None,
    records: Records = None,
) -> None:
    """Let a checkpoint expire later."""
    with _driver(url, endpoint, records) as driver:
        driver.run(refresh_checkpoint(checkpoint_id, lifetime_s))


@checkpoint_app.command("delete")
@checkpoint_app.command("remove", hidden=True)
def checkpoint_delete(url: Url, checkpoint_id: str, endpoint: Endpoint = None, records: Records = None) -> None:
    """Delete a checkpoint, by its id or name. It is an error if there is none."""
    with _driver(url, endpoint, records) as driver:
        manifest = driver.run(require_newest())
        driver.run(delete_checkpoint(manifest.value.checkpoint(checkpoint_id).id))
