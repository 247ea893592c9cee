"""`endive demo`: a small sweep on local Spark, and its report."""

from typing import Annotated

import typer

from endive.cli.console import output
from endive.cli.sweep import run_and_show, size
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan
from endive.pipeline.sweep import Target, Where
from endive.pipeline.sweep_file import parse_group
from endive.spark.master import cores_here

SWEEP = """\
title = "How many commits? Three stores, one to twenty tables"
description = "90 % fast appends, 10 % validated overwrites, committed as Iceberg's Java library does, for an hour."
seeds = "1..3"

[configuration.simulation]
duration_ms = 3_600_000

[configuration.storage]
profiles = "measured"

[configuration.transaction]
cost_model = "iceberg"
inter_arrival = { distribution = "exponential", scale = 1000 }
runtime = { median = 20_000, sigma = 1.0, min = 2_000 }
operation_types = { fast_append = 0.9, validated_overwrite = 0.1 }

[grid]
"storage.provider" = ["s3", "s3x", "azurex"]
"catalog.num_tables" = [1, 5, 20]
"transaction.inter_arrival.scale" = [4000, 2000, 1000, 500, 250, 125, 62.5]
"""


def demo(
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Directory of the sweep.")] = "sweeps/demo",
) -> None:
    """Predict how many commits per second one to twenty tables sustain on three object stores: about a minute."""
    plan = Plan((parse_group(SWEEP, "demo.toml"),))
    output.print(size(plan, cores_here()), soft_wrap=True, markup=False)
    run_and_show(plan, Target(SweepDirectory(out)), Where(), report=True, as_json=False)
