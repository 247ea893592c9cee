"""A hundred million transactions through the pipeline's consolidation, and the same metrics by DuckDB.

python -m benchmarks.consolidation [ROWS]        writes results/consolidation.json

The rows are those of real runs (`EXPERIMENTS`, each with `SIMULATED` seeds), which stand for as many seeds as needed.
Spark copies the files of all runs into one data set and computes the metrics of every run in the same tasks, then their
means over seeds. DuckDB computes the same from the data set, in a process of its own, and all metrics must be equal.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.report import HERE, save
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.estimates import over_seeds
from endive.pipeline.run_rows import METRICS
from endive.pipeline.saved_sweep import RUN
from endive.pipeline.transactions import TransactionDataSet
from endive.sim.config.configuration import load_configuration
from endive.sim.engines import simulate
from endive.sim.results.summary import Window
from endive.spark.session import spark_session
from tests.pipeline.another_engine import differences, means_over_seeds, metrics_of_runs

BASE = str(HERE.parent / "configs" / "fast_append_s3.toml")
MIXES = ("fast_append = 1.0", "fast_append = 0.9, validated_overwrite = 0.1", "fast_append = 0.5, merge_append = 0.5")
EXPERIMENTS = {
    f"{tables} tables, {mix}": (
        f"catalog.num_tables={tables}",
        f"transaction.operation_types={{ {mix} }}",
        "transaction.inter_arrival={ scale = 20 }",
    )
    for tables in (10, 50)
    for mix in MIXES
}
SIMULATED = 2
ROWS = 100_000_000
HEAP = "4g"
CORES = 2
COMPARED = tuple(name for name in METRICS if name != "cpu_s")


def prepare(directory: SweepDirectory, rows_min: int) -> tuple[pa.Table, int]:
    """Simulate, and give every run its file; return the windows of the runs and the number of rows."""
    here = Path(directory.url)
    real: dict[str, list[tuple[Path, int]]] = {}
    for experiment, overrides in EXPERIMENTS.items():
        settings = load_configuration(BASE, overrides)
        for seed in range(1, SIMULATED + 1):
            path = here / directory.transactions(experiment, seed)
            table = simulate(settings, seed).table
            directory.create_table(directory.transactions(experiment, seed), table)
            real.setdefault(experiment, []).append((path, len(table)))
    runs, rows = [], 0
    for seed in range(1, 10_000):
        for experiment, files in real.items():
            path, count = files[(seed - 1) % SIMULATED]
            if seed > SIMULATED:
                os.link(path, here / directory.transactions(experiment, seed))
            runs.append({"experiment": experiment, "seed": seed})
            rows += count
        if rows >= rows_min:
            break
    window = {"window_start_ms": settings.window.start_ms, "window_end_ms": settings.window.end_ms}
    return pa.Table.from_pylist([run | window for run in runs]), rows


class Watch:
    """Adds up the CPU time of a process and all its descendants, and the most memory that they ever had together.

    Every process is sampled while it lives: Spark's Python daemon ignores the end of its workers, so that the system
    forgets what they have used, and a difference of sums would take it away from a later block.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._cpu_s: dict[int, float] = {}
        self._peak_mib = 0.0

    @contextmanager
    def measured(self, into: dict[str, float]) -> Iterator[None]:
        """Measure a block and record its CPU time, wall time and memory."""
        self._peak_mib, self._ended, self._cpu_s = 0.0, threading.Event(), {}
        self._sample_once()
        before, wall = dict(self._cpu_s), time.perf_counter()
        thread = threading.Thread(target=self._sample)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
        took_s = time.perf_counter() - wall
        self._sample_once()
        cpu_s = sum(used_s - before.get(pid, 0.0) for pid, used_s in self._cpu_s.items())
        into |= {"wall_s": round(took_s, 1), "cpu_s": round(cpu_s, 1), "peak_mib": round(self._peak_mib, 1)}

    def _sample(self) -> None:
        while not self._ended.wait(0.2):
            self._sample_once()

    def _sample_once(self) -> None:
        tree = self._tree()
        self._cpu_s |= {pid: used_s for pid in tree if (used_s := _cpu_s(pid)) is not None}
        self._peak_mib = max(self._peak_mib, sum(map(_resident_mib, tree)))

    def _tree(self) -> list[int]:
        found, waiting = [], [self._pid]
        while waiting:
            found.append(pid := waiting.pop())
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += map(int, _text(task).split())
        return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:  # the process has ended meanwhile
        return ""


def _cpu_s(pid: int) -> float | None:
    """Return the CPU time of a process, without its children's. None: it has ended."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else None


def _resident_mib(pid: int) -> float:
    fields = _text(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if fields else 0.0


def on_spark(
    directory: SweepDirectory, windows: pa.Table, spark: SparkSession
) -> tuple[dict[str, dict[str, float]], Path]:
    """Consolidate and compute on Spark; return what it took, and where the results are."""
    watch = Watch(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    here = Path(directory.url)
    limits = {row["experiment"]: Window(row["window_start_ms"], row["window_end_ms"]) for row in windows.to_pylist()}
    data = TransactionDataSet(directory, "data/part", pa.schema([]), {name: {} for name in EXPERIMENTS}, limits)
    copy: dict[str, float] = {}
    with watch.measured(copy):
        runs, _ = data.write(list(zip(*(windows[name].to_pylist() for name in RUN), strict=True)), spark)
    compute: dict[str, float] = {}
    with watch.measured(compute):
        runs = runs.drop_columns(["status", "message", "cpu_s"])
        means = over_seeds(spark.createDataFrame(as_done(runs))).toArrow()
    pq.write_table(runs, here / "runs.parquet")
    pq.write_table(means, here / "means.parquet")
    return {"one_data_set_with_metrics": copy, "means_over_seeds": compute}, here / "data"


def as_done(metrics: pa.Table) -> pa.Table:
    """Return metrics as the rows of runs that are done."""
    columns = {"family": "benchmark", "status": "done", "cpu_s": 0.0}
    for name, value in columns.items():
        metrics = metrics.append_column(name, pa.array([value] * len(metrics)))
    return metrics


def on_duckdb(directory: Path) -> None:
    """Compute with DuckDB, compare, and print what it took: the work of the second process."""
    windows, found = pq.read_table(directory / "windows.parquet"), pq.read_table(directory / "runs.parquet")
    wall, cpu = time.perf_counter(), time.process_time()
    runs = metrics_of_runs(sorted((directory / "data").glob("*.parquet")), windows, CORES)
    means = means_over_seeds(as_done(runs), ("family", "experiment"), COMPARED, CORES)
    took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    peak = next(line for line in _text(Path("/proc/self/status")).splitlines() if line.startswith("VmHWM"))
    took["peak_mib"] = int(peak.split()[1]) / 1024
    problems = differences(found, runs, RUN)
    problems += differences(pq.read_table(directory / "means.parquet"), means, ("family", "experiment"))
    if problems:
        raise SystemExit("\n".join(["Spark and DuckDB differ:", *problems[:20]]))
    print(json.dumps({name: round(value, 1) for name, value in took.items()}))


def main() -> None:
    if sys.argv[1:2] == ["duckdb"]:
        on_duckdb(Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="endive-consolidation-") as place:
        directory = SweepDirectory(Path(place))
        windows, rows = prepare(directory, int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
        pq.write_table(windows, Path(place) / "windows.parquet")
        with spark_session(f"local[{CORES}]", settings={"spark.driver.memory": HEAP}) as spark:
            spark_took, data = on_spark(directory, windows, spark)
        files = list(data.glob("*.parquet"))
        command = [sys.executable, "-m", "benchmarks.consolidation", "duckdb", place]
        duckdb_took = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        spark_cpu_s = sum(part["cpu_s"] for part in spark_took.values())
        body = {
            "rows": rows,
            "runs": len(windows),
            "experiments": len(EXPERIMENTS),
            "metrics_compared": len(windows) * len(COMPARED) + 2 * len(EXPERIMENTS) * len(COMPARED),
            "data_set": {"files": len(files), "mib": round(sum(file.stat().st_size for file in files) / 2**20)},
            "cores": CORES,
            "spark": {"heap": HEAP, **spark_took},
            "duckdb": {"metrics": duckdb_took},
            "spark_cpu_over_duckdb": round(spark_cpu_s / duckdb_took["cpu_s"], 2),
            "load_average": [round(load, 1) for load in os.getloadavg()],
            "note": "Where the load average is above the cores, other work ran too: compare CPU seconds. Peak memory "
            "of Spark is the JVM's and the Python workers' together; pages that processes share count twice.",
        }
        print(json.dumps(body, indent=2))
        print(f"wrote {save('consolidation', body)}")


if __name__ == "__main__":
    main()
