"""`endive catalog`: files, the past, import and export, as a user types them."""

import json
import re
from pathlib import Path
from time import sleep

import pytest

from tests.surfaces.files import CommandLine
from tests.surfaces.lake import Lake, events, rows_of

# Files.


def test_files_are_planned_from_records_and_the_skipped_ones_counted(filled: Lake) -> None:
    everything = filled.json("files", "db.events")
    assert (len(everything["files"]), everything["skipped"]["files"], everything["from"]) == (2, 0, "records")

    found = filled.json("files", "db.events", "--where", "ts >= '2024-01-02T00:00:00+00:00' and region = 'x'")

    assert [one["partition"] for one in found["files"]] == [{"ts_day": "2024-01-02", "region": "x"}]
    assert found["skipped"]["files"] == 1
    text = filled("files", "db.events", "--where", "region = 'z'").out
    assert re.search(r"0 of 2 files, 0 B of [\d.]+ kB; 2 skipped; planned from records", text)


def test_files_of_an_earlier_snapshot_by_id_time_and_tag(filled: Lake) -> None:
    first, second = filled.json("history", "db.events")["snapshots"]
    filled("tag", "db.events", "start", "--snapshot", str(first["snapshot_id"]))

    by_id = filled.json("files", "db.events", "--snapshot", str(first["snapshot_id"]))
    assert len(by_id["files"]) == 1
    assert filled.json("files", "db.events", "--at", first["timestamp"]) == by_id
    assert filled.json("files", "db.events", "--ref", "start") == by_id
    assert len(filled.json("files", "db.events", "--at", second["timestamp"])["files"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--where", "regio = 'x'"), "no column 'regio'; did you mean 'region'?"),
        (("--where", "region = = 'x'"), "is not a filter; write it as id = 7"),
        (("--where", "id = 'seven'"), "Could not convert seven into a long"),
        (("--snapshot", "1", "--ref", "main"), "one of them"),
        (("--snapshot", "1"), "Snapshot does not exist: 1"),
        (("--ref", "mian"), "Branch or tag does not exist: mian; did you mean 'main'?"),
        (("--at", "2020-01-01"), "at 2020-01-01 00:00:00 UTC; the table's history begins later, at 20"),
        (("--at", "soon"), "'soon' is not a moment"),
    ],
)
def test_unknown_snapshots_are_explained(filled: Lake, words: tuple[str, ...], message: str) -> None:
    assert message in filled("files", "db.events", *words, code=2).err


# The past.


def test_history_and_rollback_by_id_and_by_time(filled: Lake) -> None:
    first, second = filled.json("history", "db.events")["snapshots"]
    assert (first["operation"], first["in_current_state"], second["refs"]) == ("append", True, ["main"])

    filled("rollback", "db.events", "--at", first["timestamp"])
    assert rows_of(filled) == list(range(4))
    lines = filled("history", "db.events").out.splitlines()
    assert [line.startswith("*") for line in lines[1:]] == [False, True]

    forward = ("--snapshot", str(second["snapshot_id"]))
    assert "use --force to set it" in filled("rollback", "db.events", *forward, code=2).err
    assert filled.json("rollback", "db.events", *forward, "--any")["from"] == first["snapshot_id"]
    assert rows_of(filled) == list(range(8))
    assert "to where?" in filled("rollback", "db.events", code=2).err


def test_tags_and_branches_are_made_listed_and_dropped(filled: Lake) -> None:
    first, second = (one["snapshot_id"] for one in filled.json("history", "db.events")["snapshots"])
    filled("tag", "db.events", "start", "--snapshot", str(first), "--keep", "30d")
    assert filled("branch", "db.events", "trial").out == f"branch trial of db.events is at snapshot {second}\n"

    (tag,) = filled.json("tag", "db.events")
    assert (tag["name"], tag["snapshot_id"], tag["max_ref_age_ms"]) == ("start", first, 30 * 86_400_000)
    assert [one["name"] for one in filled.json("branch", "db.events")] == ["main", "trial"]
    assert "already exists: start" in filled("tag", "db.events", "start", code=2).err
    assert "it is a branch" in filled("tag", "db.events", "trial", "--drop", code=2).err
    assert "did you mean 'trial'?" in filled("branch", "db.events", "trail", "--drop", code=2).err
    assert "cannot be removed" in filled("branch", "db.events", "main", "--drop", code=2).err
    assert "a NAME is missing" in filled("tag", "db.events", "--drop", code=2).err

    filled("tag", "db.events", "start", "--drop")
    filled("branch", "db.events", "trial", "--drop")
    assert list(filled.json("show", "db.events")["metadata"]["refs"]) == ["main"]


def test_expiry_says_what_it_would_do_then_does_it_and_spares_tags(filled: Lake) -> None:
    filled.append("db.events", events(2, range(8, 9)), events(3, range(9, 10)))
    ids = [one["snapshot_id"] for one in filled.json("history", "db.events")["snapshots"]]
    filled("tag", "db.events", "start", "--snapshot", str(ids[0]))

    would = filled.json("expire", "db.events", "--older-than", "0s", "--keep", "2", "--dry-run")
    assert would["snapshot_ids"] == [ids[1]]
    assert (
        "1 of 4 snapshots would go" in filled("expire", "db.events", "--older-than", "0s", "--keep=2", "--dry-run").out
    )
    assert filled.json("expire", "db.events", "--older-than", "1d")["snapshot_ids"] == []

    done = filled.json("expire", "db.events", "--older-than", "0s", "--keep", "2")
    assert done["snapshot_ids"] == [ids[1]]
    assert done["deleted_files"]
    assert rows_of(filled) == list(range(10))
    assert "0 findings" in filled("check", "--data-files").out
    filled("set", "db.events", "gc.enabled=false")
    assert "gc.enabled=false forbids" in filled("expire", "db.events", "--older-than", "0s", code=2).err


def test_expiry_removes_a_tag_past_its_age(filled: Lake) -> None:
    first = filled.json("history", "db.events")["snapshots"][0]["snapshot_id"]
    filled("tag", "db.events", "brief", "--snapshot", str(first), "--keep", "1s")
    filled("tag", "db.events", "long", "--snapshot", str(first), "--keep", "1d")
    sleep(1.1)

    assert "would go: brief" in filled("expire", "db.events", "--dry-run").out
    assert filled.json("expire", "db.events")["refs"] == ["brief"]
    assert [one["name"] for one in filled.json("tag", "db.events")] == ["long"]


def test_orphans_are_only_listed_without_delete(filled: Lake) -> None:
    location = Path(filled.json("show", "db.events")["location"].removeprefix("file://"))
    stray = location / "data" / "stray.parquet"
    stray.write_bytes(b"left by a crash")

    assert filled.json("orphans", "db.events") == {"table": "db.events", "deleted": False, "files": []}
    assert filled("orphans", "db.events", "--older-than", "0s").out == (
        "data/stray.parquet\n1 file would be deleted; --delete does it\n"
    )
    assert stray.exists()

    assert (
        filled("orphans", "db.events", "--older-than", "0s", "--delete").out == "data/stray.parquet\n1 file deleted\n"
    )
    assert not stray.exists()
    assert rows_of(filled) == list(range(8))


# Import and export.


def test_a_table_is_imported_by_its_metadata_file_and_planned_from_records_if_wanted(
    filled: Lake, endive: CommandLine, tmp_path: Path
) -> None:
    location = filled("export", "db.events").out.strip()
    other = Lake(endive, tmp_path / "other")
    other("init")
    other("namespaces", "--create", "new")

    assert "2 snapshots" in other("import", "new.plain", location.removeprefix("file://")).out
    assert other.json("files", "new.plain")["from"] == "manifests"
    other("drop", "new.plain", "--yes")
    assert other.json("import", "new.events", location, "--index-files")["indexed_files"] == 2
    assert other.json("files", "new.events")["from"] == "records"
    assert other.json("files", "new.events")["files"] == filled.json("files", "db.events")["files"]
    assert rows_of(other, "new.events") == list(range(8))
    assert "0 findings" in other("check").out


def test_a_file_that_is_no_metadata_file_cannot_be_imported(filled: Lake, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.metadata.json"
    wrong.write_text("{}")

    assert "not there" in filled("import", "db.more", str(tmp_path / "none.metadata.json"), code=2).err
    assert "not a metadata file" in filled("import", "db.more", str(wrong), code=2).err
    assert len(filled.json("tables")) == 1


def test_an_export_writes_the_newest_state_and_a_copy(filled: Lake, tmp_path: Path) -> None:
    filled("set", "db.events", "endive.metadata-json=background")
    filled.append("db.events", events(2, range(8, 9)))
    copy = tmp_path / "copy.metadata.json"

    location = filled.json("export", "db.events", "--to", str(copy))["metadata_location"]

    assert json.loads(copy.read_text()) == json.loads(Path(location.removeprefix("file://")).read_text())
    assert rows_of(filled) == list(range(9))
    assert "nowhere" in filled("export", "db.events", "--to", "/nowhere/at/all", code=2).err
