"""Small sweeps to run, and what must come out of them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from endive.pipeline.plan import Plan
from endive.pipeline.run_rows import done_row
from endive.pipeline.sweep_file import parse_group
from endive.sim.engine.run import summarise_compiled

SWEEP = """
title = "Small"
seeds = "1..3"
keep = "{keep}"

[configuration.simulation]
duration_ms = 300_000

[configuration.storage]
provider = "s3"

[configuration.transaction]
inter_arrival = {{ distribution = "exponential", scale = 500 }}
runtime = {{ median = 2000, sigma = 0.5 }}
operation_types = {{ fast_append = 0.7, validated_overwrite = 0.3 }}

[grid]
"catalog.num_tables" = {tables}
"transaction.inter_arrival.scale" = {scales}
"""


def sweep_text(tables: str = "[1, 3]", scales: str = "[2000, 400, 150]", keep: str = "summaries") -> str:
    return SWEEP.format(tables=tables, scales=scales, keep=keep)


def small_plan(**changes: str) -> Plan:
    """Six experiments of five simulated minutes, three seeds each: a second of work."""
    return Plan((parse_group(sweep_text(**changes), "small.toml"),))


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """The rows that tasks have written, in the order of runs, without how long they took."""
    parts = [pq.read_table(path) for path in sorted(directory.glob("runs/part-*.parquet"))]
    rows = pa.concat_tables(parts).drop_columns(["cpu_s"]).to_pylist() if parts else []
    return sorted(rows, key=lambda row: (row["experiment"], row["seed"], row["status"]))


def expected_rows(plan: Plan) -> list[dict[str, Any]]:
    """The same rows, computed here, one after another."""
    rows = []
    for experiment, seed in sorted(plan.runs):
        settings = plan.settings[experiment]
        summary, counters = summarise_compiled(settings, seed, settings.window)
        rows.append(done_row(experiment, seed, summary, 0.0, counters, settings))
    empty = dict.fromkeys(rows[0] | {"message": None})
    return [{key: value for key, value in (empty | row).items() if key != "cpu_s"} for row in rows]
