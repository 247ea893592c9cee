"""`endive catalog checkpoint`, `open`, `restore` and `clone` from the command line."""

from pathlib import Path

from tests.surfaces.lake import Lake, events, rows_of


def test_a_checkpoint_is_made_listed_opened_and_deleted(filled: Lake) -> None:
    made = filled("checkpoint", "before", "--keep", "7d").out
    assert made.startswith("checkpoint before has all tables as of ")
    filled.append("db.events", events(2, range(8, 10)))
    filled("create", "db.later", "--schema", "id long")

    (listed,) = filled.json("checkpoint")
    assert (listed["name"], listed["clone"]) == ("before", None)
    assert "before" in filled("checkpoint").out
    assert [one["rows"] for one in filled.json("open", "--at", "before")] == [8]
    assert len(filled.json("files", "db.events", "-p", "endive.at=before")["files"]) == 2
    assert len(filled.json("tables")) == 2
    read_only = filled("create", "db.new", "--schema", "id long", "-p", "endive.at=before", code=2)
    assert "checkpoint before, which is read-only" in read_only.err

    assert "choose another name" in filled("checkpoint", "before", code=2).err
    assert "did you mean" in filled("restore", "befor", code=2).err
    assert "a NAME is missing" in filled("checkpoint", "--drop", code=2).err
    filled("checkpoint", "before", "--drop")
    assert filled.json("checkpoint") == []
    assert "Checkpoint does not exist" in filled("open", "--at", "before", code=2).err


def test_a_restore_says_what_it_changes_and_can_be_undone(filled: Lake) -> None:
    filled("checkpoint", "before")
    assert "nothing has changed since" in filled("restore", "before", "--dry-run").out
    filled.append("db.events", events(2, range(8, 10)))
    filled("create", "db.later", "--schema", "id long")

    foretold = filled("restore", "before", "--dry-run").out
    assert "would be changed: db.events" in foretold
    assert "would be dropped: db.later" in foretold
    assert rows_of(filled) == list(range(10))
    report = filled.json("restore", "before", "--yes")

    assert rows_of(filled) == list(range(8))
    assert report["dropped"] == ["db.later"]
    filled("restore", report["undo"], "--yes")
    assert rows_of(filled) == list(range(10))
    assert filled.json("show", "db.later")["table"] == "db.later"
    assert filled.json("check")["findings"] == []


def test_a_clone_is_a_catalog_of_its_own(filled: Lake, tmp_path: Path) -> None:
    target = tmp_path / "what-if"
    assert f"{target} has 1 table" in filled("clone", str(target)).out
    assert list(target.rglob("*.parquet")) == []
    clone = Lake(filled._run, target)
    clone.append("db.events", events(2, range(8, 10)))

    assert rows_of(clone) == list(range(10))
    assert rows_of(filled) == list(range(8))
    (held,) = filled.json("checkpoint")
    assert held["clone"] == f"file://{target}"
    assert "was cloned from it" in filled("checkpoint", held["name"], "--drop", code=2).err
    assert "there is a catalog already" in filled("clone", str(target), code=2).err
    assert clone.json("check")["findings"] == filled.json("check")["findings"] == []
    filled("checkpoint", held["name"], "--drop", "--force")
