"""Sweeps: from the command to the report, and what Spark costs over a plain pool of processes.

Three parts: the group of providers, tables and mixes (900 experiments, 5 seeds), and all published groups (1,610
experiments, 5 seeds), each by the command that a user gives, in an empty directory; then the same bins of one group
by Spark and by `multiprocessing.Pool`, alternating, with as many processes as there are cores.

`python -m benchmarks.sweep` writes `results/sweep.json`; with `pool` or `command` only that part is measured again.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.report import HERE, RESULTS, save, spread
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.execute import execute, sweep_job
from endive.pipeline.plan import Plan
from endive.pipeline.sweep_file import load_group
from endive.pipeline.task import SweepJob, run_bin
from endive.spark.daemon import warm_engine
from endive.spark.session import spark_session

PUBLISHED = HERE.parent / "configs" / "sweeps" / "published"
POOL_GROUP = "catalog_latency_fast_append"
"""70 experiments of 0.01 to 0.5 s: the short runs make Spark's part as large as it gets."""
REPEATS = 3


def command(files: Sequence[Path]) -> dict[str, object]:
    """Measure a sweep by the command, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "out"
        words = [sys.executable, "-m", "endive", "sweep", *map(str, files), "--out", str(out)]
        started = time.perf_counter()
        subprocess.run(words, check=True)
        wall_s = time.perf_counter() - started
        runs = pq.read_table(out / "measures" / "runs.parquet", columns=["experiment", "seed", "status", "cpu_s"])
        distinct = {(row["experiment"], row["seed"]): row["cpu_s"] for row in runs.to_pylist()}
        engine_s = sum(distinct.values())
        return {
            "runs": runs.num_rows,
            "distinct_runs": len(distinct),
            "done": runs["status"].to_pylist().count("done"),
            "wall_s": round(wall_s, 1),
            "engine_cpu_s": round(engine_s, 1),
            "cores_busy_with_the_engine": round(engine_s / wall_s / (os.cpu_count() or 1), 3),
            "load_average": [round(load, 1) for load in os.getloadavg()],
            "report_bytes": (out / "report.html").stat().st_size,
        }


def by_spark(plan: Plan) -> tuple[float, float]:
    """Return the seconds of the session with the runs, and of the runs alone."""
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        with spark_session() as spark:
            ready = time.perf_counter()
            directory = SweepDirectory(Path(place))
            directory.prepare(plan)
            execute(plan, directory, (), spark)
            ended = time.perf_counter()
        return time.perf_counter() - started, ended - ready


_job: SweepJob


def _begin(job: SweepJob) -> None:
    global _job  # noqa: PLW0603 - how a pool's processes are given what they share
    _job = job
    warm_engine()


def _run(number: int) -> None:
    run_bin(_job, number, 0)


def by_pool(plan: Plan) -> float:
    """Return the seconds that a pool of processes takes for the same bins in the same order."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as place:
        directory = SweepDirectory(Path(place))
        directory.prepare(plan)
        bins = plan.bins(plan.runs, cores)
        job = sweep_job(plan, directory, bins)
        started = time.perf_counter()
        with multiprocessing.get_context("spawn").Pool(cores, _begin, (job,)) as pool:
            for _ in pool.imap_unordered(_run, range(len(bins))):
                pass
        return time.perf_counter() - started


def overhead() -> dict[str, object]:
    """Measure Spark and a pool alternately."""
    plan = Plan((load_group(str(PUBLISHED / f"{POOL_GROUP}.toml")),))
    warm_engine()
    pairs = [(by_pool(plan), *by_spark(plan)) for _ in range(REPEATS)]
    pool, session, runs = zip(*pairs, strict=True)
    return {
        "group": POOL_GROUP,
        "runs": len(plan.runs),
        "bins": len(plan.bins(plan.runs, os.cpu_count() or 1)),
        "pool_s": spread(pool),
        "spark_runs_s": spread(runs),
        "spark_with_session_s": spread(session),
        "overhead_of_runs": spread([a / b - 1 for a, b in zip(runs, pool, strict=True)]),
        "overhead_with_session": spread([a / b - 1 for a, b in zip(session, pool, strict=True)]),
    }


def main(parts: Sequence[str]) -> None:
    path = RESULTS / "sweep.json"
    body = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    body = {key: body[key] for key in ("unit", "commands", "pool") if key in body}
    body["unit"] = "seconds"
    if "pool" in parts or not parts:
        body["pool"] = overhead()
        save("sweep", body)
    if "command" in parts or not parts:
        body["commands"] = {"published": command(sorted(PUBLISHED.glob("*.toml")))}
        save("sweep", body)
        body["commands"]["provider_tables_mix"] = command([PUBLISHED / "provider_tables_mix.toml"])
    print(save("sweep", body).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
