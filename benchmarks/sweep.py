"""Sweeps: from the command to the report, a bucket beside a directory, and what Spark costs over a pool of processes.

    command    the group of providers, tables and mixes (900 experiments, 5 seeds), and all published groups (1,610
               experiments, 5 seeds), each by the command that a user gives, in an empty directory
    bucket     all published groups by the command, into a directory and into a bucket of SeaweedFS, one after the other
    before     all published groups by the command, in an older checkout and in this one (`--before`; see `beside`)
    pool       the same bins of one group by Spark and by `multiprocessing.Pool`, alternating, with as many processes as
               there are cores

`python -m benchmarks.sweep` writes `results/sweep.json`; `--only bucket` measures that part again. `--short` takes the
smallest published group instead of all of them, and prints the figures without writing them.
"""

import argparse
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

from benchmarks.beside import beside, commit_of, run_in
from benchmarks.report import HERE, RESULTS, save, spread
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.execute import execute, sweep_job
from endive.pipeline.plan import Plan
from endive.pipeline.sweep_file import load_group
from endive.pipeline.task import SweepJob, run_bin
from endive.spark.daemon import warm_engine
from endive.spark.session import spark_session
from tests.servers.conftest import ANY_KEYS, has_bucket, seaweedfs

PUBLISHED = HERE.parent / "configs" / "sweeps" / "published"
POOL_GROUP = "catalog_latency_fast_append"
"""70 experiments of 0.01 to 0.5 s: the short runs make Spark's part as large as it gets."""
SHORT_GROUP = "fast_append"
"""10 experiments."""
PARTS = ("pool", "bucket", "command")
REPEATS = 3


def swept(files: Sequence[Path], out: str, *options: str) -> float:
    """Run a sweep by the command, in a process of its own; return the seconds."""
    words = [sys.executable, "-m", "endive", "sweep", *map(str, files), "--out", out, *options]
    started = time.perf_counter()
    subprocess.run(words, check=True, env={**os.environ, **ANY_KEYS})
    return time.perf_counter() - started


def bucket(files: Sequence[Path], repeats: int) -> dict[str, object]:
    """Measure a sweep into a directory and into a bucket, alternating."""
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as place:
        objects = Path(place) / "seaweedfs"
        objects.mkdir()
        with seaweedfs(objects, has_bucket) as endpoint:
            for number in range(repeats):
                far = swept(files, f"s3://bucket/{number}", "--endpoint", endpoint)
                pairs.append((swept(files, f"{place}/{number}"), far))
    near_s, far_s = zip(*pairs, strict=True)
    return {
        "groups": [file.stem for file in files],
        "directory_s": spread(near_s),
        "bucket_s": spread(far_s),
        "bucket_by_directory": spread([far / near for near, far in pairs]),
        "load_average": [round(load, 1) for load in os.getloadavg()],
    }


def command(files: Sequence[Path]) -> dict[str, object]:
    """Measure a sweep by the command, and its engine's part."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "out"
        wall_s = swept(files, str(out))
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


def compare(before: Path, short: bool) -> None:
    """Print the seconds of all published groups, from the command to the report, beside an older checkout."""
    names = [f"configs/sweeps/published/{SHORT_GROUP if short else '*'}.toml"]

    def wall_s(tree: Path) -> float:
        files = sorted(str(path.relative_to(tree)) for name in names for path in tree.glob(name))
        with tempfile.TemporaryDirectory() as place:
            started = time.perf_counter()
            run_in(tree, "-m", "endive", "sweep", *files, "--out", f"{place}/out")
            return time.perf_counter() - started

    row = beside(before, "the 8,050-run suite, command to report, s", 300, wall_s, rounds=1)
    if not short:
        print(f"wrote {save('sweep_before', {'before': commit_of(before), 'cases': [row]})}")


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


def overhead(repeats: int) -> dict[str, object]:
    """Measure Spark and a pool alternately."""
    plan = Plan((load_group(str(PUBLISHED / f"{POOL_GROUP}.toml")),))
    warm_engine()
    pairs = [(by_pool(plan), *by_spark(plan)) for _ in range(repeats)]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--before", type=Path, help="an older checkout: all published groups there and here, once each")
    parser.add_argument("--short", action="store_true", help="the smallest group, once; nothing is written")
    chosen = parser.parse_args()
    files = [PUBLISHED / f"{SHORT_GROUP}.toml"] if chosen.short else sorted(PUBLISHED.glob("*.toml"))
    if chosen.before:
        compare(chosen.before, chosen.short)
        return
    path = RESULTS / "sweep.json"
    body = json.loads(path.read_text(encoding="utf-8")) if path.exists() and not chosen.short else {}
    body = {key: body[key] for key in ("commands", "bucket", "pool") if key in body} | {"unit": "seconds"}
    for part in chosen.only:
        name = "commands" if part == "command" else part
        if part == "pool":
            body["pool"] = overhead(1 if chosen.short else REPEATS)
        elif part == "bucket":
            body["bucket"] = bucket(files, 1)
        else:
            body["commands"] = {"short" if chosen.short else "published": command(files)}
            if not chosen.short:
                body["commands"]["provider_tables_mix"] = command([PUBLISHED / "provider_tables_mix.toml"])
        if not chosen.short:  # each part as soon as it is measured
            save("sweep", body, [name])
    print(json.dumps(body, indent=2))


if __name__ == "__main__":
    main()
