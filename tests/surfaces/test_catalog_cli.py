"""`endive catalog`, as a user types it: what it does, what it prints, and what it says when something is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path
from time import sleep

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable
from typer.testing import CliRunner

from endive.catalog.pyiceberg import EndiveCatalog
from endive.catalog.works import Transaction
from endive.cli.app import app
from endive.cli.catalog import app as catalog_app
from endive.cli.catalog import tables
from endive.errors import ConfigurationError
from endive.protocol.requests import Steps
from tests.surfaces.files import CommandLine
from tests.surfaces.lake import SCHEMA, Lake, events


@pytest.fixture
def lake(endive: CommandLine, tmp_path: Path) -> Lake:
    """A lake without a catalog."""
    return Lake(endive, tmp_path / "lake")


def rows_of(lake: Lake, name: str = "db.events") -> list[int]:
    """The ids that a plain reader finds in a table, by its metadata file alone."""
    location = lake("export", name).out.strip()
    return sorted(StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist())


# The catalog and its namespaces.


def test_a_catalog_is_made_once(lake: Lake) -> None:
    assert lake("init").out == f"{lake.url}: a new catalog\n"
    assert "is there already" in lake("init").out
    assert lake.json("init") == {"url": lake.url, "created": False}


@pytest.mark.parametrize(
    "words", [("tables",), ("show", "a.b"), ("check",), ("drop", "a.b", "--yes"), ("namespaces", "--create", "a")]
)
def test_a_url_without_a_catalog_is_named_with_the_remedy(lake: Lake, words: tuple[str, ...]) -> None:
    outcome = lake(*words, code=2)

    assert outcome.out == ""
    assert f"{lake.url}: there is no catalog here" in outcome.err
    assert "`endive catalog init`" in outcome.err
    assert not lake.directory.joinpath("_endive").exists()


def test_namespaces_are_created_listed_changed_and_dropped(lake: Lake) -> None:
    lake("init")
    assert lake("namespaces", "--create", "sales.europe", "--set", "owner=ana").out == "created sales.europe\n"
    lake("namespaces", "sales.europe", "--set", "tier=1", "--remove", "owner")
    lake("create", "sales.events", "--schema", SCHEMA)

    assert lake.json("namespaces") == [
        {"namespace": "sales", "tables": 1, "properties": {}},
        {"namespace": "sales.europe", "tables": 0, "properties": {"tier": "1"}},
    ]
    assert re.search(r"sales\.europe +0 +tier=1", lake("namespaces", "sales").out)
    assert "is not empty: 1 tables, 1 namespaces" in lake("namespaces", "--drop", "sales", code=2).err
    lake("namespaces", "--drop", "sales.europe")
    assert [one["namespace"] for one in lake.json("namespaces")] == ["sales"]


def test_what_cannot_be_done_to_namespaces_at_once_is_said_at_once(lake: Lake) -> None:
    lake("init")
    error = lake("namespaces", "--create", "a", "--drop", "b", "--set", "c", code=2).err
    assert "'c' has no `=`; write c=VALUE" in error

    error = lake("namespaces", "x", "--create", "a", "--drop", "b", "--set", "c=d", code=2).err
    assert "3 faults" in error
    assert "leave 'x' out" in error
    assert "needs a NAMESPACE" not in error


# Tables.


def test_a_table_is_created_and_shown_as_it_was_described(lake: Lake) -> None:
    lake("init")
    lake("namespaces", "--create", "db")
    partition = "day(ts), bucket(16, id), region"
    lake("create", "db.events", "--schema", SCHEMA, "--partition", partition, "--set", "owner=ana")

    shown = lake("show", "db.events").out
    assert re.search(r"1 +id +long +required", shown)
    assert re.search(rf"partitioned by +{re.escape(partition)}", shown)
    assert re.search(r"owner +ana", shown)
    assert "none: the table is empty" in shown
    document = lake.json("show", "db.events")
    assert document["metadata"]["properties"] == {"owner": "ana"}
    assert document["current_snapshot"] is None
    assert [one["table"] for one in lake.json("tables")] == ["db.events"]


def test_a_table_takes_the_columns_of_a_parquet_file(lake: Lake, tmp_path: Path) -> None:
    lake("init")
    lake("namespaces", "--create", "db")
    sample = pa.table({"id": pa.array([1], pa.int64()), "tags": pa.array([["a"]]), "day": pa.array([1], pa.date32())})
    pq.write_table(sample, tmp_path / "sample.parquet")

    lake("create", "db.copy", "--like", str(tmp_path / "sample.parquet"), "--partition", "month(day)")

    (schema,) = lake.json("show", "db.copy")["metadata"]["schemas"]
    assert [field["name"] for field in schema["fields"]] == ["id", "tags", "day"]
    assert schema["fields"][1]["type"]["type"] == "list"
    missing = lake("create", "db.other", "--like", str(tmp_path / "none.parquet"), code=2).err
    assert "none.parquet" in missing
    assert "--schema or --like" in lake("create", "db.other", code=2).err


@pytest.mark.filterwarnings("ignore:No preferred file implementation:UserWarning")  # PyIceberg's, about s4
def test_nothing_is_created_when_the_description_has_faults(filled: Lake) -> None:
    error = filled("create", "db.bad", "--schema", "id bigint, x strin", code=2).err

    assert "2 faults" in error
    assert "Iceberg calls it long" in error
    assert "did you mean 'string'?" in error
    assert "already exists: db.events" in filled("create", "db.events", "--schema", SCHEMA, code=2).err
    assert "only supported in 3" in filled("create", "db.bad", "--schema", "t timestamp_ns", code=2).err
    assert "'abc'" in filled("create", "db.bad", "--schema", "t int", "--set", "format-version=abc", code=2).err
    assert "s4" in filled("create", "db.bad", "--schema", "t int", "--location", "s4://a/b", code=2).err
    assert [one["table"] for one in filled.json("tables")] == ["db.events"]


def test_tables_are_listed_with_what_they_hold_at_any_depth(filled: Lake) -> None:
    filled("namespaces", "--create", "db.inner")
    filled("create", "db.inner.more", "--schema", "id long")
    filled("namespaces", "--create", "other")

    listed = {one["table"]: one for one in filled.json("tables")}
    assert set(listed) == {"db.events", "db.inner.more"}
    assert (listed["db.events"]["rows"], listed["db.events"]["files"], listed["db.events"]["snapshots"]) == (8, 2, 2)
    assert [one["table"] for one in filled.json("tables", "db.inner")] == ["db.inner.more"]
    assert filled.json("tables", "other") == []
    assert re.search(r"db\.events +8 +2 +[\d.]+ kB +2 ", filled("tables", "db").out)


def test_a_rename_moves_a_table_to_another_namespace_and_keeps_its_rows(filled: Lake) -> None:
    uuid = filled.json("show", "db.events")["uuid"]
    filled("namespaces", "--create", "archive")

    assert filled("rename", "db.events", "archive.old").out == "db.events is now archive.old\n"

    assert filled.json("show", "archive.old")["uuid"] == uuid
    assert rows_of(filled, "archive.old") == list(range(8))
    assert "does not exist: db.events" in filled("show", "db.events", code=2).err


# Dropping.


def test_a_drop_asks_first_and_keeps_files_unless_told_otherwise(filled: Lake) -> None:
    location = Path(filled.json("show", "db.events")["location"].removeprefix("file://"))
    before = sorted(location.rglob("*"))
    no = CliRunner().invoke(app, ["catalog", "drop", filled.url, "db.events"], input="n\n")
    assert no.exit_code == 1
    assert "8 rows, 2 snapshots" in no.stderr
    assert "nothing was dropped" in no.stderr
    nobody = CliRunner().invoke(app, ["catalog", "drop", filled.url, "db.events"], input="")
    assert isinstance(nobody.exception, ConfigurationError)
    assert len(filled.json("tables")) == 1

    yes = CliRunner().invoke(app, ["catalog", "drop", filled.url, "db.events"], input="y\n")
    assert yes.exit_code == 0, yes.output
    assert filled.json("tables") == []
    assert sorted(location.rglob("*")) == before


def test_a_purge_deletes_the_files(filled: Lake) -> None:
    location = Path(filled.json("show", "db.events")["location"].removeprefix("file://"))

    assert filled.json("drop", "db.events", "--purge", "--yes")["purged"] is True

    assert [path for path in location.rglob("*") if path.is_file()] == []
    assert "0 faults" in filled("check").out


def test_a_table_that_is_written_while_somebody_decides_is_not_dropped(
    filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_confirm", lambda *_: filled.append("db.events", events(2, range(8, 9))))

    error = filled("drop", "db.events", code=2).err

    assert "db.events: it is being written: version 2 was to be dropped, and it is at 3 now" in error
    assert rows_of(filled) == list(range(9))


def test_a_writer_of_a_table_that_was_dropped_is_told_so(filled: Lake) -> None:
    def write_late(catalog: EndiveCatalog) -> None:
        table = catalog.load_table("db.events")
        filled("drop", "db.events", "--yes")
        with pytest.raises(NoSuchTableError, match=r"db\.events; it may have been dropped or renamed since"):
            table.append(events(2, range(8, 9)))

    filled.use(write_late)
    assert filled.json("tables") == []


# Properties and columns.


def test_properties_and_columns_change_in_one_commit(filled: Lake) -> None:
    filled("set", "db.events", "owner=ana", "note=")
    version = filled.json("show", "db.events")["version"]

    after = filled.json(
        *("set", "db.events", "owner=bea", "--remove", "note", "--add-column", "price decimal(10, 2)"),
        *("--rename-column", "id=number"),
    )

    assert after["version"] == version + 1
    assert after["metadata"]["properties"] == {"owner": "bea"}
    names = [field["name"] for field in after["metadata"]["schemas"][-1]["fields"]]
    assert names == ["number", "ts", "region", "price"]
    filled("set", "db.events", "--type", "price=decimal(12, 2)", "--drop-column", "number")
    assert re.search(r"price +decimal\(12, 2\)", filled("show", "db.events").out)


def test_type_changes_that_iceberg_forbids_are_refused_all_at_once_and_nothing_changes(filled: Lake) -> None:
    before = filled.json("show", "db.events")

    error = filled(
        *("set", "db.events", "a=b", "--type", "id=string", "--type", "ts=date", "--drop-column", "region"),
        *("--add-column", "must long required", "--rename-column", "none=some"),
        code=2,
    ).err

    assert "5 faults" in error
    assert "Cannot change column type: id: long -> string" in error
    assert "Cannot change column type: ts: timestamptz -> date" in error
    assert "the table is partitioned by region" in error
    assert "cannot add required column: must" in error
    assert filled.json("show", "db.events") == before


def test_the_format_of_a_table_goes_up_and_never_down(filled: Lake) -> None:
    filled("create", "db.old", "--schema", "id long", "--set", "format-version=1")

    after = filled.json("set", "db.old", "format-version=2", "owner=ana")["metadata"]

    assert (after["format-version"], after["properties"]) == (2, {"owner": "ana"})
    assert "Cannot downgrade" in filled("set", "db.old", "format-version=1", code=2).err
    assert "a version is a number" in filled("set", "db.old", "format-version=two", code=2).err


def test_set_without_a_change_and_removal_of_what_is_not_there_are_faults(filled: Lake) -> None:
    assert "nothing to change" in filled("set", "db.events", code=2).err
    assert "has no property 'none' to remove" in filled("set", "db.events", "--remove", "none", code=2).err
    assert "'novalue' has no `=`" in filled("set", "db.events", "novalue", code=2).err


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
        (("--at", "2020-01-01"), "the table's history begins later"),
        (("--at", "soon"), "'soon' is not a moment"),
    ],
)
def test_what_cannot_be_looked_up_is_explained(filled: Lake, words: tuple[str, ...], message: str) -> None:
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
    assert "--any goes there all the same" in filled("rollback", "db.events", *forward, code=2).err
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
    assert "0 faults" in filled("check", "--data-files").out
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


def test_orphans_are_only_listed_until_told_to_delete_them(filled: Lake) -> None:
    location = Path(filled.json("show", "db.events")["location"].removeprefix("file://"))
    stray = location / "data" / "stray.parquet"
    stray.write_bytes(b"left by a crash")

    assert filled.json("orphans", "db.events") == {"table": "db.events", "deleted": False, "files": []}
    assert filled("orphans", "db.events", "--older-than", "0s").out == (
        "data/stray.parquet\n1 files would be deleted; --delete does it\n"
    )
    assert stray.exists()

    assert (
        filled("orphans", "db.events", "--older-than", "0s", "--delete").out == "data/stray.parquet\n1 files deleted\n"
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
    assert "0 faults" in other("check").out


def test_what_is_no_metadata_file_cannot_be_imported(filled: Lake, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.metadata.json"
    wrong.write_text("{}")

    assert "not there" in filled("import", "db.more", str(tmp_path / "none.metadata.json"), code=2).err
    assert "not a metadata file" in filled("import", "db.more", str(wrong), code=2).err
    assert len(filled.json("tables")) == 1


def test_an_export_writes_what_is_behind_and_a_copy_where_told(filled: Lake, tmp_path: Path) -> None:
    filled("set", "db.events", "endive.metadata-json=background")
    filled.append("db.events", events(2, range(8, 9)))
    copy = tmp_path / "copy.metadata.json"

    location = filled.json("export", "db.events", "--to", str(copy))["metadata_location"]

    assert json.loads(copy.read_text()) == json.loads(Path(location.removeprefix("file://")).read_text())
    assert rows_of(filled) == list(range(9))
    assert "nowhere" in filled("export", "db.events", "--to", "/nowhere/at/all", code=2).err


# Names, machines and processes.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "db.event"), "Table does not exist: db.event; did you mean 'db.events'?"),
        (("show", "db.x"), "`endive catalog tables"),
        (("show", "events"), "needs a namespace, as in `namespace.table`"),
        (("tables", "dbs"), "Namespace does not exist: dbs; did you mean 'db'?"),
        (("create", "dbb.t", "--schema", "id long"), "Namespace does not exist: dbb; did you mean 'db'?"),
        (("rename", "db.events", "nowhere.t"), "Namespace does not exist: nowhere; `endive catalog namespaces"),
        (("rename", "db.event", "db.t"), "did you mean 'db.events'?"),
        (("drop", "db.evnts", "--yes"), "did you mean 'db.events'?"),
        (("set", "db.evnts", "a=b"), "did you mean 'db.events'?"),
        (("history", "db.evnts"), "did you mean 'db.events'?"),
        (("check", "db.evnts"), "did you mean 'db.events'?"),
        (("export", "db..x"), "a level is empty"),
        (("tables", "-p", "novalue"), "'novalue' has no `=`"),
    ],
)
def test_wrong_names_end_with_code_2_and_the_nearest_right_one(
    filled: Lake, words: tuple[str, ...], message: str
) -> None:
    outcome = filled(*words, code=2)

    assert message in outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")


@pytest.mark.parametrize(
    "words",
    [
        *(("init",), ("namespaces",), ("namespaces", "--create", "b"), ("tables",), ("show", "db.events")),
        *(("create", "db.t", "--schema", "id long"), ("rename", "db.events", "db.t"), ("history", "db.events")),
        *(("files", "db.events"), ("set", "db.events", "a=[bold]b[/]"), ("tag", "db.events", "t"), ("check",)),
        *(("branch", "db.events"), ("expire", "db.events"), ("orphans", "db.events"), ("export", "db.events")),
        ("drop", "db.events", "--yes"),
    ],
    ids=lambda words: words[0],
)
def test_json_is_json_and_nothing_else_is_on_standard_output(filled: Lake, words: tuple[str, ...]) -> None:
    assert filled.json(*words) is not None


def test_markup_in_names_and_values_is_printed_as_it_is(filled: Lake) -> None:
    filled("set", "db.events", "note=[bold]b[/]")

    assert "[bold]b[/]" in filled("show", "db.events").out


def test_every_command_teaches_by_an_example(endive: CommandLine) -> None:
    commands = [str(command.name) for command in catalog_app.registered_commands]

    assert len(commands) == 18
    for command in commands:
        text = endive("catalog", command, "--help").out
        assert "For example" in text
        assert f"endive catalog {command}" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("space", "words", "what"),
    [
        ("__tables/", ("tables",), "a table's record"),
        ("__snapshots/", ("history", "db.events"), "a snapshot's record"),
        ("__files/", ("files", "db.events"), "a file's record"),
        ("__namespaces/", ("namespaces",), "a namespace's record"),
        ("__catalog", ("tables",), "the record of the catalog itself"),
    ],
)
def test_a_damaged_record_is_named_with_the_remedy(filled: Lake, space: str, words: tuple[str, ...], what: str) -> None:
    def spoil(tx: Transaction) -> Steps[None]:
        rows = yield from tx.scan(space.encode())
        for key, _ in rows:
            tx.put(key, b"{}")

    filled.tamper(spoil)

    assert f"error: {what} in the catalog: cannot be read" in filled(*words, code=2).err


@pytest.mark.parametrize("pattern", ["snap-*.avro", "*-m0.avro"])
def test_damaged_manifests_are_named_and_a_purge_says_what_it_left(filled: Lake, pattern: str) -> None:
    paths = [path for path in filled.directory.glob(f"db/*/metadata/{pattern}") if path.is_file()]
    for path in paths:
        path.write_bytes(path.read_bytes()[:300])

    error = filled("orphans", "db.events", "--older-than", "0s", code=2).err
    assert "cannot be read as Iceberg's Avro" in error
    assert any(path.name in error for path in paths)
    error = filled("drop", "db.events", "--purge", "--yes", code=2).err
    assert "db.events: it is dropped, but not all of its files could be found" in error
    assert filled.json("tables") == []


def test_a_damaged_store_is_named_and_not_a_traceback(filled: Lake) -> None:
    for path in (filled.directory / "_endive" / "wal").iterdir():
        path.write_bytes(path.read_bytes()[:-3])

    error = filled("tables", code=2).err

    assert "wal/" in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_it_works_in_processes_of_its_own(filled: Lake) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "endive", "catalog", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    listed = run("tables", filled.url, "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [one["rows"] for one in json.loads(listed.stdout)] == [8]

    wrong = run("show", filled.url, "db.event", "--json")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: Table does not exist: db.event; did you mean 'db.events'?\n"
