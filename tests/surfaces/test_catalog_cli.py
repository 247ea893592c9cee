"""`endive catalog`, as a user types it: what it does, what it prints, and what it says when something is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError
from typer.testing import CliRunner

from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.cli.app import app
from endive.cli.catalog import app as catalog_app
from endive.cli.catalog import table_commands
from endive.errors import ConfigurationError
from endive.protocol.requests import Steps
from tests.surfaces.files import CommandLine
from tests.surfaces.lake import SCHEMA, Lake, events, rows_of


@pytest.fixture
def lake(endive: CommandLine, tmp_path: Path) -> Lake:
    """A lake without a catalog."""
    return Lake(endive, tmp_path / "lake")


# The catalog and its namespaces.


def test_a_catalog_is_made_once(lake: Lake) -> None:
    assert lake("init").out == f"{lake.url}: a new catalog\n"
    assert "is there already" in lake("init").out
    assert lake.json("init") == {"url": lake.url, "created": False, "warehouse": lake.url}


def test_a_catalog_keeps_its_warehouse(lake: Lake, tmp_path: Path) -> None:
    warehouse = f"file://{tmp_path}/tables"
    assert lake.json("init", "--warehouse", str(tmp_path / "tables"))["warehouse"] == warehouse
    assert lake.json("init")["warehouse"] == warehouse
    lake("init", "--warehouse", warehouse)
    assert f"its warehouse is {warehouse}" in lake("init", "--warehouse", f"{tmp_path}/other", code=2).err

    lake("namespaces", "--create", "db")
    assert lake.json("create", "db.t", "--schema", "id long")["location"].startswith(f"{warehouse}/db/t-")


@pytest.mark.parametrize("words", [("init",), ("tables",), ("namespaces", "--create", "a"), ("check",)])
@pytest.mark.parametrize("url", ["memory://", "memory://lake"])
def test_a_catalog_in_memory_is_refused(endive: CommandLine, words: tuple[str, ...], url: str) -> None:
    command, *rest = words
    outcome = endive("catalog", command, url, *rest)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {url}: ")
    assert "it would be gone when the command ends; give a directory or a bucket" in outcome.err


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
    assert "is not empty: 1 table, 1 namespace" in lake("namespaces", "--drop", "sales", code=2).err
    lake("namespaces", "--drop", "sales.europe")
    assert [one["namespace"] for one in lake.json("namespaces")] == ["sales"]


def test_all_errors_of_the_namespaces_command_are_reported_at_once(lake: Lake) -> None:
    lake("init")
    error = lake("namespaces", "--create", "a", "--drop", "b", "--set", "c", code=2).err
    assert "'c' has no `=`; write c=VALUE" in error

    error = lake("namespaces", "x", "--create", "a", "--drop", "b", "--set", "c=d", code=2).err
    assert "3 errors" in error
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
def test_nothing_is_created_when_the_arguments_have_errors(filled: Lake) -> None:
    error = filled("create", "db.bad", "--schema", "id bigint, x strin", code=2).err

    assert "2 errors" in error
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


def test_a_drop_asks_first_and_keeps_files_without_purge(filled: Lake) -> None:
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
    assert "0 findings" in filled("check").out


def test_a_table_that_is_written_before_the_answer_is_not_dropped(
    filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_commands, "_confirm", lambda *_: filled.append("db.events", events(2, range(8, 9))))

    error = filled("drop", "db.events", code=2).err

    assert "db.events: it is being written: version 2 was to be dropped, and it is at 3 now" in error
    assert rows_of(filled) == list(range(9))


def test_a_commit_to_a_dropped_table_fails(filled: Lake) -> None:
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

    assert "5 errors" in error
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


def test_set_without_a_change_and_removal_of_an_unknown_property_are_errors(filled: Lake) -> None:
    assert "nothing to change" in filled("set", "db.events", code=2).err
    assert "has no property 'none' to remove" in filled("set", "db.events", "--remove", "none", code=2).err
    assert "'novalue' has no `=`" in filled("set", "db.events", "novalue", code=2).err


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

    assert len(commands) == 27
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
    def spoil(tx: StoreTransaction) -> Steps[None]:
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
def test_commands_run_in_separate_processes(filled: Lake) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "endive", "catalog", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    listed = run("tables", filled.url, "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [one["rows"] for one in json.loads(listed.stdout)] == [8]

    wrong = run("show", filled.url, "db.event", "--json")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: Table does not exist: db.event; did you mean 'db.events'?\n"
