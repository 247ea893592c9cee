"""`endive catalog` when something is wrong or dangerous: what it asks before, and what it says after."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.files import CommandLine
from tests.surfaces.lake import Lake, events

LAUNCH = "import sys; from endive.cli import main; sys.argv[0] = 'endive'; main()"


def dropped(lake: Lake, *words: str, answer: str) -> subprocess.CompletedProcess[str]:
    """What `drop` does in a process of its own, where standard output is but what it writes there."""
    command = [sys.executable, "-c", LAUNCH, "catalog", "drop", lake.url, *words]
    return subprocess.run(command, input=answer, capture_output=True, text=True, check=False)


@pytest.fixture
def importer(filled: Lake, endive: CommandLine, tmp_path: Path) -> Lake:
    """Another lake, with the table `new.events` imported from the first."""
    other = Lake(endive, tmp_path / "other")
    other("init")
    other("namespaces", "--create", "new")
    location = filled("export", "db.events").out.strip()
    said = other("import", "new.events", location).out
    assert "`drop --purge`, `expire` and `orphans --delete` delete them for both" in said
    assert f"`endive catalog set {other.url} new.events gc.enabled=false` forbids that" in said
    return other


# Dropping.


def test_a_purge_of_an_imported_table_names_the_files_that_would_go(filled: Lake, importer: Lake) -> None:
    table = importer.json("show", "new.events")
    files = [path for path in Path(table["location"].removeprefix("file://")).rglob("*") if path.is_file()]

    done = dropped(importer, "new.events", "--purge", answer="n\n")

    assert done.returncode == 1
    assert f"it was imported from {table['metadata_location']}" in done.stderr
    assert f"{len(files)} files would be deleted in {table['location']}\n" in done.stderr
    assert all(path.exists() for path in files)
    assert "0 findings" in importer("check").out

    importer("drop", "new.events", "--yes")
    assert "0 findings" in importer("check").out  # nothing of it is left
    assert importer.json("check")["pending_deletions"] == 0


def test_a_purge_names_every_folder_that_files_would_go_from(filled: Lake, tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    filled("set", "db.events", f"write.data.path={elsewhere}")
    filled.append("db.events", events(2, range(8, 9)))

    said = dropped(filled, "db.events", "--purge", answer="n\n").stderr

    assert f"1 file would be deleted in {elsewhere}\n" in said
    assert f" files would be deleted in {filled.json('show', 'db.events')['location']}\n" in said
    assert "imported" not in said


def test_the_question_leaves_standard_output_to_the_answer(filled: Lake) -> None:
    no = dropped(filled, "db.events", "--json", answer="n\n")
    assert (no.returncode, no.stdout) == (1, "")

    yes = dropped(filled, "db.events", "--json", answer="what?\ny\n")
    assert json.loads(yes.stdout)["dropped"] == "db.events"
    assert "please answer y or n" in yes.stderr


def test_an_error_begins_a_line_of_its_own(filled: Lake) -> None:
    nobody = dropped(filled, "db.events", answer="")

    assert (nobody.returncode, nobody.stdout) == (2, "")
    assert "\nerror: db.events: 1 error\n  - no answer" in nobody.stderr


# Names that are missing, or taken.


def test_the_error_about_a_missing_namespace_has_the_command_that_creates_it(filled: Lake) -> None:
    error = filled("create", "sales.t", "--schema", "id long", code=2).err
    command = f"endive catalog namespaces {filled.url} --create sales"
    assert error == f"error: Namespace does not exist: sales; `{command}` makes it\n"

    filled("namespaces", "--create", "sales")
    filled("create", "sales.t", "--schema", "id long")


def test_the_error_about_a_used_name_has_commands_to_resolve_it(filled: Lake) -> None:
    filled("tag", "db.events", "start")

    assert f"`endive catalog tables {filled.url} db` lists" in filled("namespaces", "--create", "db", code=2).err
    error = filled("create", "db.events", "--schema", "id long", code=2).err
    assert f"`endive catalog show {filled.url} db.events` shows the existing one" in error
    error = filled("tag", "db.events", "start", code=2).err
    assert f"`endive catalog show {filled.url} db.events` shows where it is, and --drop removes it" in error


def test_an_unrelated_name_is_not_offered(filled: Lake) -> None:
    filled("namespaces", "--create", "x")
    filled("create", "x.a", "--schema", "id long")
    filled("tag", "db.events", "v1")

    assert "did you mean" not in filled("show", "x.b", code=2).err
    assert "did you mean" not in filled("tables", "y", code=2).err
    assert "did you mean" not in filled("files", "db.events", "--ref", "v2", code=2).err


@pytest.mark.parametrize("words", [("tables",), ("init",), ("check",)])
def test_a_url_that_cannot_be_is_shown_as_it_was_typed(endive: CommandLine, words: tuple[str, ...]) -> None:
    outcome = endive("catalog", *words, "s3:///lake")

    assert (outcome.code, outcome.err) == (2, "error: s3:///lake: 1 error\n  - the URL names no bucket\n")


def test_a_bucket_that_cannot_be_reached_is_shown_as_it_was_typed(
    endive: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))

    for command in ("tables", "init", "check"):
        error = endive("catalog", command, "s3://bucket/lake", "--endpoint", "http://127.0.0.1:9").err
        assert error.startswith("error: s3://bucket/lake: no credentials were found")


# All faults at once.


def test_errors_in_all_options_of_create_are_reported_at_once(filled: Lake) -> None:
    error = filled(
        *("create", "db.t", "--schema", "id lonk, ts timestamptz", "--partition", "dya(ts), bucket(4, id), nothing"),
        *("--set", "endive.comit.attempts=3", "--set", "endive.commit.attempts=0"),
        code=2,
    ).err

    assert "endive catalog create: 5 errors" in error
    assert "--schema: id: no type 'lonk'; did you mean 'long'?" in error
    assert "--partition: no transform 'dya'; did you mean 'day'?" in error
    assert "--partition: no column 'nothing'" in error
    assert "--set: endive.comit.attempts: no such property; did you mean 'endive.commit.attempts'?" in error
    assert "--set: endive.commit.attempts: '0' is not a whole number from 1 on" in error


def test_errors_in_one_option_are_reported_under_its_name(filled: Lake) -> None:
    assert "error: --schema: 1 error\n" in filled("create", "db.t", "--schema", "id lonk", code=2).err
    error = filled("create", "db.t", "--schema", "id long", "--partition", "day(id)", code=2).err
    assert "error: --partition: 1 error\n" in error


def test_errors_in_all_changes_are_reported_at_once(filled: Lake) -> None:
    error = filled(
        *("set", "db.events", "endive.metadata-json=sometimes", "--add-column", "a lonk", "--type", "id=lonk"),
        *("--rename-column", "id"),
        code=2,
    ).err

    assert "endive catalog set: 4 errors" in error
    assert error.count("\n") == 5  # a line for each, and no list inside a list


def test_properties_of_the_catalog_are_checked(filled: Lake) -> None:
    error = filled("tables", "--property", "endive.writr=shared", "-p", "endive.metadata-json=no", code=2).err

    assert f"{filled.url}: 2 errors" in error
    assert "endive.writr: no such property; did you mean 'endive.writer'?" in error


def test_the_error_about_a_file_that_is_no_metadata_file_is_one_line(filled: Lake, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.metadata.json"
    wrong.write_text(json.dumps({"format-version": 2, "location": 7}), encoding="utf-8")

    error = filled("import", "db.more", str(wrong), code=2).err

    assert "not a metadata file: location: Input should be a valid string" in error
    assert "pydantic" not in error
    assert error.count("\n") == 1 + error.count("  - ")  # a line for each fault, and no list inside a list


# What is shown.


def test_how_long_tags_and_branches_are_kept_is_shown(filled: Lake) -> None:
    assert filled("tag", "db.events", "month", "--keep", "30d").out.endswith(", kept 30d\n")
    filled("branch", "db.events", "trial", "--keep", "90m")

    assert re.search(r"^month +\d+ +30d *$", filled("tag", "db.events").out, re.MULTILINE)
    branches = filled("branch", "db.events").out
    assert re.search(r"^main +\d+ +for ever *$", branches, re.MULTILINE)
    assert re.search(r"^trial +\d+ +90m *$", branches, re.MULTILINE)
    assert re.search(r"^month +tag +\d+ +30d *$", filled("show", "db.events").out, re.MULTILINE)


def test_orphans_are_listed_although_they_may_not_be_deleted(filled: Lake) -> None:
    location = Path(filled.json("show", "db.events")["location"].removeprefix("file://"))
    stray = location / "data" / "stray.parquet"
    stray.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, stray)
    filled("set", "db.events", "gc.enabled=false")

    listed = filled("orphans", "db.events", "--older-than", "0s").out
    assert "data/stray.parquet\n" in listed
    assert "1 file that nothing needs; its property gc.enabled=false forbids deleting its files" in listed
    assert "forbids deleting" in filled("orphans", "db.events", "--older-than", "0s", "--delete", code=2).err
    assert stray.exists()
