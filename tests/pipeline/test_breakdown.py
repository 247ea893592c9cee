"""Metrics of a sweep by class of transactions and by table."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pytest

from endive.pipeline.breakdown import METRICS, TABLES_KEPT, breakdown_table
from endive.pipeline.run_rows import RUN_SCHEMA, done_row, with_later_columns
from endive.pipeline.sweep_file import parse_group
from endive.report.by_class import breakdown_of as rows_of_page
from endive.report.groups import ReportGroup
from endive.report.reading import Results
from endive.sim.config.configuration import parse_configuration
from endive.sim.engine.run import summarise_compiled

FLEET = """
simulation = { duration_ms = 600_000, trim_start_ms = 0, trim_end_ms = 0 }
storage.provider = "s3"
catalog = { num_tables = 8, conflict_granularity = "table" }
transaction.runtime.value = 1_000
[workload.streams]
arrivals = "triggered"
interval_ms = 10_000
writers = 20
[workload.compaction]
arrivals = "triggered"
interval_ms = 300_000
operation_types.rewrite = 1
"""


def row_of(text: str, seed: int) -> dict[str, Any]:
    settings = parse_configuration(text)
    return done_row("e", seed, summarise_compiled(settings, seed, settings.window)[0], 0.1)


def test_a_run_s_row_has_the_metrics_of_its_classes_and_hottest_tables() -> None:
    row = row_of(FLEET, 1)
    found = json.loads(row["breakdown"])
    assert list(found["class"]) == ["streams", "compaction"]
    assert len(found["table"]) == TABLES_KEPT
    commits = sum(metrics["committed_per_s"] for metrics in found["class"].values())
    assert commits == pytest.approx(row["committed_per_s"])
    assert all(list(metrics) == list(METRICS) for by in found.values() for metrics in by.values())
    assert pa.Table.from_pylist([row], schema=RUN_SCHEMA)["breakdown"][0].as_py() == row["breakdown"]


def test_one_class_and_one_table_have_no_breakdown() -> None:
    assert row_of("storage.provider = 's3'\n[transaction]\ninter_arrival.scale = 60_000\n", 1)["breakdown"] is None


def test_means_over_the_seeds_are_of_those_that_have_the_table() -> None:
    def seed(number: int, **tables: float) -> dict[str, Any]:
        found = {name: dict.fromkeys(METRICS, value) for name, value in tables.items()}
        return {"experiment": "e", "seed": number, "breakdown": json.dumps({"table": found})}

    rows = [seed(1, t1=2.0, t2=5.0), seed(2, t1=4.0), {"experiment": "e", "seed": 3, "breakdown": None}]
    table = breakdown_table(pa.Table.from_pylist(rows), ["experiment"]).to_pylist()
    assert [(row["by"], row["name"], row["seeds"], row["success"]) for row in table] == [
        ("table", "t1", 2, 3.0),
        ("table", "t2", 1, 5.0),
    ]
    assert table[0]["success_ci"] == pytest.approx(12.706, rel=1e-3)
    assert table[1]["success_ci"] is None


def test_rows_of_an_older_version_are_read() -> None:
    old = pa.Table.from_pylist([row_of(FLEET, 1)], schema=RUN_SCHEMA).drop_columns(["breakdown"])
    assert with_later_columns(old).schema.equals(RUN_SCHEMA)


def test_a_class_s_writers_are_the_offered_load_of_a_sweep() -> None:
    text = (
        "seeds = '1..1'\n[grid]\n'workload.streams.writers' = [10, 20]\n[configuration.storage]\nprovider = 's3'\n"
        "[configuration.workload.streams]\narrivals = 'triggered'\ninterval_ms = 10_000\n"
    )
    group = parse_group(text, "fleet.toml")
    assert group.load_key == "workload.streams.writers"
    assert group.load_unit == "writers"


def test_the_page_names_the_experiment_the_class_and_the_table() -> None:
    columns = [column for name in METRICS for column in (name, f"{name}_ci")]
    values = dict.fromkeys(columns, 0.5)
    frame = pd.DataFrame(
        [
            {"family": "f", "by": "class", "name": "streams", "workload.streams.writers": 40, **values},
            {"family": "f", "by": "table", "name": "3", "workload.streams.writers": 40, **values},
            {"family": "other", "by": "class", "name": "x", "workload.streams.writers": 40, **values},
        ]
    )
    group = SimpleNamespace(about=SimpleNamespace(name="f", varied=("workload.streams.writers",), trust={}))
    found = rows_of_page(cast("Results", SimpleNamespace(breakdown=frame)), cast("ReportGroup", group))
    assert [row[1] for row in found.rows] == ["streams", "table 3"]
    assert found.rows[0][0].endswith("40")
    assert found.rows[0][3] == "50.0 %"
