"""What the store logs: events with stable names and facts."""

import json
import logging
import re
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from endive.cli.app import app
from endive.errors import FencedError, StorageUnavailableError
from endive.kv import Store, StoreOptions
from endive.kv.log.wal import WAL
from endive.logs import ROOT, JsonLines, LogForm, log_error, log_event, show_logs
from endive.objects import MemoryStore

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "store.md"
QUIET = StoreOptions(compact_here=False, poll_interval_ms=3_600_000, retention_ms=0)
Line = dict[str, object]
TOLD = re.compile(r'log_(?:event|error)\(\s*log,\s*"(\w+)"(.*?)\)(?:  #.*)?$', re.DOTALL | re.MULTILINE)


class Lines:
    """What was logged as JSON."""

    def __init__(self) -> None:
        self.stream = StringIO()

    def all(self) -> list[Line]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def of(self, event: str) -> list[Line]:
        return [line for line in self.all() if line["event"] == event]


@pytest.fixture
def lines() -> Iterator[Lines]:
    held = Lines()
    handler = show_logs(LogForm.JSON, held.stream)
    yield held
    logging.getLogger(ROOT).removeHandler(handler)


class Throttled(MemoryStore):
    """Refuses the next read of a manifest once."""

    is_in_trouble = False

    def get(self, path: str) -> bytes | None:
        if self.is_in_trouble:
            self.is_in_trouble = False
            raise StorageUnavailableError(path, "503 slow down")
        return super().get(path)


def everything_happens(objects: Throttled) -> None:
    with Store(objects, options=QUIET) as store:
        store.put(b"a", b"1")
        for _ in range(4):
            store.put(b"a", b"2")
            store.compact()
        store.checkpoint(60, "before")
        store.collect()
        objects.is_in_trouble = True
        store.refresh()
        with Store(objects, options=QUIET) as newer:
            newer.put(b"b", b"1")
        with pytest.raises(FencedError):
            store.put(b"c", b"")


def test_events_carry_facts(lines: Lines) -> None:
    everything_happens(Throttled())

    first, second = lines.of("opened")
    assert (first["epoch"], first["next_entry"], first["entries_replayed"]) == (1, 2, 1)  # its own fence
    assert first["survives_power_loss"] is False  # it is in memory
    assert (second["epoch"], second["level"], second["logger"]) == (2, "info", "endive.kv.store")
    assert [line["rows"] for line in lines.of("compacted")] == [1, 1, 1, 1]
    assert [line["runs"] for line in lines.of("merged")] == [4]
    assert lines.of("checkpointed")[0]["name"] == "before"
    assert lines.of("collected")[0]["ssts"] == 4
    (halted,) = lines.of("halted")
    assert (halted["error"], halted["epoch"]) == ("FencedError", 1)
    assert halted["message"] == "writer epoch 1 was fenced by epoch 2"
    assert [line["epoch"] for line in lines.of("closed")] == [2, 1]


def test_a_request_that_is_repeated_says_so(lines: Lines) -> None:
    everything_happens(Throttled())
    (repeated,) = lines.of("request_repeated")

    assert (repeated["request"], repeated["error"]) == ("Get", "StorageUnavailableError")
    assert "503 slow down" in str(repeated["message"])


def test_errors_of_background_maintenance_are_logged(lines: Lines) -> None:
    objects = MemoryStore()
    options = StoreOptions(compact_bytes=1, poll_interval_ms=1)
    with Store(objects, options=options) as store:
        objects.put(WAL.path_of(store.wal_end + 2), b"foreign")
        store.put(b"a", b"1")  # the entry before it; the compactor meets the foreign one
        while not lines.of("maintenance_failed"):
            pass

    failed = lines.of("maintenance_failed")[0]
    assert (failed["level"], failed["error"]) == ("error", "CorruptObjectError")


def test_every_event_and_fact_is_in_the_document() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    told = [
        (event, re.findall(r"(\w+)=", facts))
        for part in ("kv", "drivers")
        for path in (DOCUMENT.parents[1] / "endive" / part).rglob("*.py")
        for event, facts in TOLD.findall(path.read_text(encoding="utf-8"))
    ]

    assert len(told) >= 10
    for event, facts in told:
        row = re.search(rf"^\| `{event}` \|.*$", text, re.MULTILINE)
        assert row, f"docs/store.md does not list {event}"
        assert [fact for fact in facts if f"`{fact}`" not in row.group()] == []


# Forms.


def test_text_has_name_and_facts_too() -> None:
    stream = StringIO()
    handler = show_logs(LogForm.TEXT, stream)
    try:
        log = logging.getLogger("endive.test")
        log_event(log, "opened", epoch=3, url="file:///a b", name="", done=None)
        log_event(log, "not shown", logging.DEBUG)
        log_error(log, "failed", ValueError("no"))
    finally:
        logging.getLogger(ROOT).removeHandler(handler)

    first, second = stream.getvalue().splitlines()
    assert first.endswith('INFO endive.test: opened epoch=3 url="file:///a b" name="" done=null')
    assert second.endswith("WARNING endive.test: failed error=ValueError message=no")


def test_records_of_other_libraries_are_json_too() -> None:
    try:
        raise ValueError("told")
    except ValueError:
        trouble = sys.exc_info()
    record = logging.LogRecord("other", logging.ERROR, "file", 1, "%s broke", ("it",), trouble)
    line = json.loads(JsonLines().format(record))

    assert (line["logger"], line["level"], line["message"]) == ("other", "error", "it broke")
    assert line["trace"].endswith("ValueError: told")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])


def test_the_command_line_logs_when_asked_and_only_then(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    quiet = CliRunner().invoke(app, ["kv", "put", url, "a", "1"])
    loud = CliRunner().invoke(app, ["kv", "--log", "json", "compact", url])
    again = CliRunner().invoke(app, ["kv", "put", url, "a", "1"])

    assert (quiet.stderr, again.stderr) == ("", "")
    (line,) = map(json.loads, loud.stderr.splitlines())
    assert (line["event"], line["entries"], line["rows"]) == ("compacted", 2, 1)
    assert "2 WAL entries into the levels" in loud.stdout


def test_control_characters_are_escaped_in_text() -> None:
    """A name in a fact must not begin a line of its own, nor tell a terminal what to do."""
    stream = StringIO()
    handler = show_logs(LogForm.TEXT, stream)
    log_event(logging.getLogger(f"{ROOT}.names"), "changed", on="db.x\rforged\x1b[2J\u2028", plain="db.é")
    logging.getLogger(ROOT).removeHandler(handler)

    assert stream.getvalue().endswith('changed on="db.x\\rforged\\u001b[2J\\u2028" plain=db.é\n')
