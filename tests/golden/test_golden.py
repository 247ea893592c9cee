"""The formats on disk: stores, catalogs, runs and sweeps of earlier releases can be read, checked and written to."""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from typer.testing import CliRunner

from endive.catalog.pyiceberg import EndiveCatalog
from endive.cli.app import app
from endive.kv import Reader, Store
from endive.kv.transaction import Transaction
from endive.objects import open_objects
from endive.protocol.requests import Steps
from endive.report.reading import read_results
from endive.sim.results.experiment import load_result
from endive.sim.results.summary import estimates
from tests.golden.conftest import ROOT


def command(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def rows_of(name: str, checkpoint: str | None = None) -> dict[str, str]:
    with Reader(open_objects(f"file://{ROOT}/{name}"), checkpoint=checkpoint) as reader:
        return {key.decode(): value.decode() for key, value in reader.scan()}


@pytest.mark.parametrize("name", ["exclusive", "shared"])
def test_a_store_reads_and_checks_clean(name: str, expected: dict[str, Any]) -> None:
    assert rows_of(name) == expected[name]["now"]
    command("kv", "check", f"file://{ROOT}/{name}")


def test_a_checkpoint_reads_as_of_its_time(expected: dict[str, Any]) -> None:
    assert rows_of("exclusive", expected["exclusive"]["checkpoint"]) == expected["exclusive"]["then"]
    assert rows_of("exclusive", expected["exclusive"]["checkpoint_id"]) == expected["exclusive"]["then"]


@pytest.mark.parametrize("name", ["exclusive", "shared"])
def test_an_exclusive_writer_continues_a_store(name: str, expected: dict[str, Any]) -> None:
    with Store(open_objects(f"file://{ROOT}/{name}")) as store:
        store.put(b"new", b"row")
        store.compact(everything=True)
        store.put(b"newer", b"row")

    assert rows_of(name) == expected[name]["now"] | {"new": "row", "newer": "row"}
    command("kv", "collect", f"file://{ROOT}/{name}", "--retention-s", "0")
    command("kv", "check", f"file://{ROOT}/{name}")
    assert rows_of("exclusive", "before") == expected["exclusive"]["then"]


@pytest.mark.parametrize("name", ["exclusive", "shared"])
def test_a_shared_writer_continues_a_store(name: str, expected: dict[str, Any]) -> None:
    def put(tx: Transaction) -> Steps[None]:
        assert (yield from tx.get(b"new")) is None
        tx.put(b"new", b"row")

    with Store(open_objects(f"file://{ROOT}/{name}"), "shared") as store:
        store.transact(put)
        store.compact(everything=True)

    assert rows_of(name) == expected[name]["now"] | {"new": "row"}
    command("kv", "check", f"file://{ROOT}/{name}")


def opened(**properties: str) -> EndiveCatalog:
    plug_in = "endive.catalog.pyiceberg.EndiveCatalog"
    lake = load_catalog("golden", **{"py-catalog-impl": plug_in, "uri": f"file://{ROOT}/lake"}, **properties)
    assert isinstance(lake, EndiveCatalog)
    return lake


def contents(table: Table) -> dict[str, Any]:
    """What the golden data keeps of a table."""
    metadata = table.metadata
    return {
        "uuid": str(metadata.table_uuid),
        "rows": sorted(
            json.loads(table.scan().to_arrow().to_pandas().to_json(orient="records")), key=lambda row: row["id"]
        ),
        "snapshots": len(metadata.snapshots),
        "refs": {name: ref.snapshot_id for name, ref in metadata.refs.items()},
        "rows_by_ref": {
            name: table.scan(snapshot_id=ref.snapshot_id).to_arrow().num_rows for name, ref in metadata.refs.items()
        },
        "files": sorted(Path(task.file.file_path).name for task in table.scan().plan_files()),
        "properties": dict(metadata.properties),
        "schemas": len(metadata.schemas),
        "history": len(metadata.snapshot_log),
    }


def test_every_table_of_a_catalog_reads(expected: dict[str, Any]) -> None:
    with closing(opened()) as lake:
        tables = {name: contents(lake.load_table(tuple(name.split("\x1f")))) for name in expected["catalog"]["tables"]}
        listed = {
            "\x1f".join(identifier)
            for namespace in expected["catalog"]["namespaces"]
            for identifier in lake.list_tables(tuple(namespace.split("\x1f")))
        }
        properties = {
            name: lake.load_namespace_properties(tuple(name.split("\x1f")))
            for name in expected["catalog"]["namespaces"]
        }

    assert tables == expected["catalog"]["tables"]
    assert listed == set(tables)
    assert properties == expected["catalog"]["namespaces"]


def test_a_catalog_checks_clean(expected: dict[str, Any]) -> None:
    assert expected
    command("catalog", "check", f"file://{ROOT}/lake")
    command("kv", "check", f"file://{ROOT}/lake/_endive")


def grow(table: Table) -> None:
    """Append a row with an id and nulls, whatever columns the table has."""
    schema = table.schema().as_arrow()
    table.append(pa.Table.from_pylist([{"id": 999}], schema=schema))


@pytest.mark.parametrize("writer", ["shared", "exclusive"])
def test_every_table_of_a_catalog_takes_commits(writer: str, expected: dict[str, Any]) -> None:
    with closing(opened(**{"endive.writer": writer})) as lake:
        for name, before in expected["catalog"]["tables"].items():
            table = lake.load_table(tuple(name.split("\x1f")))
            grow(table)
            with table.update_schema() as update:
                update.add_column("later", table.schema().find_type("id"))
            after = contents(table.refresh())
            assert [row["id"] for row in after["rows"]] == [*(row["id"] for row in before["rows"]), 999]
            assert after["uuid"] == before["uuid"]
        lake.kv.expire_snapshots("db.plain", older_than_unix_ms=2**61, keep_last=1)
        assert (
            lake.load_table("db.plain").scan().to_arrow().num_rows
            == len(expected["catalog"]["tables"]["db\x1fplain"]["rows"]) + 1
        )
        assert lake.kv.clear_dropped() in {0, 1}  # the purge that a crash interrupted; expiry may have finished it
        assert lake.kv.check() == []

    command("catalog", "check", f"file://{ROOT}/lake")


def test_a_metadata_file_that_is_behind_catches_up(expected: dict[str, Any]) -> None:
    command("catalog", "export", f"file://{ROOT}/lake", "db.behind")

    with closing(opened()) as lake:
        location = lake.load_table("db.behind").metadata_location
    written = json.loads(Path(location.removeprefix("file://")).read_text(encoding="utf-8"))
    assert written["current-snapshot-id"] == expected["catalog"]["tables"]["db\x1fbehind"]["refs"]["main"]


def test_a_finished_run_reads_and_gives_the_same_metrics(expected: dict[str, Any]) -> None:
    files = sorted((ROOT / "experiments").rglob("results.parquet"))
    metrics = estimates([load_result(path).summary.flat() for path in files])

    assert {name: value.mean for name, value in metrics.items()} == {
        name: value["mean"] for name, value in expected["run"]["figures"].items()
    }


def test_a_run_of_an_older_model_is_kept_beside_the_new_one(expected: dict[str, Any], tmp_path: Path) -> None:
    files = sorted((ROOT / "experiments").rglob("results.parquet"))
    before = [path.stat().st_mtime_ns for path in files]
    copy = shutil.copytree(ROOT / "experiments", tmp_path / "experiments")

    command("run", f"{ROOT}/config.toml", "--seeds", "1..2", "--out", str(copy), "--json")

    assert len(list(copy.rglob("results.parquet"))) == 2 * len(files)  # simulated: the model has changed since
    assert [path.stat().st_mtime_ns for path in files] == before


def test_a_sweep_reads(expected: dict[str, Any]) -> None:
    assert all((ROOT / path).is_file() for path in expected["sweep"])

    results = read_results(ROOT / "sweep")

    assert (len(results.runs), len(results.experiments)) == (8, 4)


@pytest.mark.slow
def test_a_sweep_can_be_reported(expected: dict[str, Any]) -> None:
    assert expected

    # In a process of its own: measures older than the runs are computed again, on Spark.
    subprocess.run([sys.executable, "-m", "endive", "report", f"{ROOT}/sweep"], check=True, capture_output=True)

    assert list((ROOT / "sweep").rglob("*.html"))
