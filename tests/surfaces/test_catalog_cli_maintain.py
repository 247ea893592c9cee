"""`endive catalog maintain`: what it says, its exit codes, and that it can be repeated."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.lake import Lake, events, rows_of

AGED = ("history.expire.max-snapshot-age-ms=0", "commit.manifest.min-count-to-merge=2")


def test_maintenance_reports_its_changes_with_and_without_a_dry_run(filled: Lake) -> None:
    filled("set", "db.events", *AGED)

    foretold = filled("maintain", "--dry-run").out
    assert "db.events: 1 snapshot and " in foretold
    assert "2 manifests would become 1" in foretold
    assert "would maintain 1 table; 1 snapshot expired;" in foretold

    done = filled("maintain").out
    assert "2 manifests became 1" in done
    summary = done.splitlines()[-1]
    assert summary.startswith("maintained 1 table; 2 snapshots expired; ")
    assert summary.endswith("; 0 failures")
    assert rows_of(filled) == list(range(8))
    assert filled.json("check")["findings"] == []


def test_the_log_of_the_store_is_compacted(filled: Lake) -> None:
    document = filled.json("maintain")

    assert document["wal_entries"] > 0
    assert document["tables"][0]["table"] == "db.events"
    assert filled.json("maintain")["wal_entries"] <= 2  # what the compaction itself has written


def test_a_table_that_fails_is_reported_and_the_exit_code_says_so(filled: Lake) -> None:
    filled("set", "db.events", *AGED)
    filled.append("db.events", events(2, range(8, 10)))
    for path in filled.directory.glob("db/*/metadata/snap-*.avro"):
        path.write_bytes(b"damaged")

    outcome = filled("maintain", code=1)

    assert "error: db.events: " in outcome.err
    assert outcome.out.endswith("1 failure\n")


def test_wrong_arguments(filled: Lake) -> None:
    assert "is not a duration" in filled("maintain", "--every", "often", code=2).err
    assert "did you mean" in filled("maintain", "db.event", code=2).err


def test_it_keeps_running_until_it_is_stopped(filled: Lake) -> None:
    command = [sys.executable, "-m", "endive.cli", "catalog", "maintain", filled.url, "--every", "100ms", "--json"]
    if not (Path(sys.executable).parent / "endive").exists():
        pytest.skip("the command is not installed")
    command[:3] = [str(Path(sys.executable).parent / "endive")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        rounds = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM

    assert [len(one["tables"]) for one in rounds] == [1, 1, 1]
    assert filled.json("check")["findings"] == []
