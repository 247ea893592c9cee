"""The compiled engine against the readable one, on the same configurations in the same run, by CPU time.

python -m benchmarks.engine                              writes results/engine.json
python -m benchmarks.engine --before ../endive-before    three cases in turns with an older checkout (see `beside`),
                                                         and writes results/engine_before.json

Where the readable engine would take minutes, it runs a shorter time and its CPU time is scaled by the number of
operations (requests, catalog reads, commits), which both engines count alike; such rows say so. The results of every
pair of runs of equal length are compared, and must be equal row for row.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from numba import njit

from benchmarks.beside import beside, commit_of, cpu_s_of, run_in
from benchmarks.report import HERE, save, spread
from endive.sim.config.configuration import Settings, load_configuration
from endive.sim.engine import kernel
from endive.sim.engine.model import curve_of
from endive.sim.engines import Engine, simulate
from endive.sim.latency import LognormalLatency
from endive.sim.results.statistics import RunResult

BASE = str(HERE.parent / "configs" / "fast_append_s3.toml")
SEED, SAMPLES, DRAWS = 42, 5, 2_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Case:
    """One configuration, and how long the readable engine runs it."""

    name: str
    overrides: tuple[str, ...] = ()
    reference_ms: int = HOUR_MS

    def settings(self, duration_ms: int) -> Settings:
        return load_configuration(BASE, [*self.overrides, f"simulation.duration_ms={duration_ms}"])


TENTH = "transaction.operation_types={ fast_append = 0.9, validated_overwrite = 0.1 }"
OVERWRITES = "transaction.operation_types={ validated_overwrite = 1.0 }"
CASES = (
    Case("fast append, 200 ms"),
    Case("fast append, 20 ms", ("transaction.inter_arrival.median=20",), 300_000),
    Case("validated overwrite only, 50 ms", ("transaction.inter_arrival.median=50", OVERWRITES), 120_000),
    Case("90/10, 200 ms, 10 tables", ("catalog.num_tables=10", TENTH)),
    Case("90/10, 200 ms, 50 tables", ("catalog.num_tables=50", TENTH)),
    Case("append catalog on s3x, 20 tables, 50 ms", (
        "storage.provider=s3x", 'catalog={ type = "append", num_tables = 20, compaction_max_entries = 1000 }',
        "transaction.inter_arrival.median=50",
    ), 900_000),
    Case("partitions: 1 of 100, 100 ms", (
        "catalog.partitions.num_partitions=100", "transaction.partitions.per_txn=1",
        "catalog.conflict_granularity=partition", "transaction.inter_arrival.median=100",
    )),
)  # fmt: skip


def timed_run(settings: Settings, engine: Engine) -> tuple[float, RunResult]:
    started = time.process_time()
    result = simulate(settings, SEED, engine)
    return time.process_time() - started, result


def operations(result: RunResult) -> int:
    """Return the number of requests, catalog reads and commits; other simulators call these events."""
    waits = ("reads", "writes", "heads", "cas_success", "cas_failure", "physical_success", "physical_failure")
    return sum(count for name, count in result.counters.items() if name.endswith(waits))


def measure(case: Case) -> dict[str, object]:
    short, hour = case.settings(case.reference_ms), case.settings(HOUR_MS)
    reference_s, expected = timed_run(short, "reference")
    _, found = timed_run(short, "compiled")
    if not expected.table.equals(found.table):
        raise SystemExit(f"{case.name}: the engines differ")
    runs = [timed_run(hour, "compiled") for _ in range(SAMPLES)]
    compiled_s, done = median(seconds for seconds, _ in runs), operations(runs[0][1])
    scaled_s = reference_s * done / operations(expected)
    row = {
        "name": case.name,
        "overrides": list(case.overrides),
        "transactions": runs[0][1].table.num_rows,
        "operations": done,
        "unit": "CPU seconds for one simulated hour",
        "compiled": spread([seconds for seconds, _ in runs]),
        "compiled_operations_per_s": round(done / compiled_s),
        "reference": round(scaled_s, 3),
        "reference_ran_ms": case.reference_ms,
        "reference_is_scaled_by_operations": case.reference_ms != HOUR_MS,
        "ratio": round(scaled_s / compiled_s, 1),
    }
    print(f"{case.name:42} {compiled_s:8.3f} s  reference {scaled_s:9.1f} s  ratio {row['ratio']}")
    return row


@njit
def _draw_all(curves, scale, key, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    total = np.int64(0)
    for number in range(count):
        total += np.int64(np.floor(kernel.value_at(curves, np.uint64(0), kernel.draw(key, number + 1)) * scale + 0.5))
    return total


@njit
def _hash_all(key, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    total = np.uint64(0)
    for number in range(count):
        total += kernel.draw(key, number + 1)
    return total


def nanoseconds_per_draw() -> dict[str, object]:
    """Measure a drawn latency, and its random number alone."""
    quantile = LognormalLatency.from_median(27, 0.62, 10).quantile
    key = np.uint64(SEED)
    runs = {
        "latency": lambda: _draw_all(curve_of(quantile.table), quantile.scale_ticks, key, DRAWS),
        "random number alone": lambda: _hash_all(key, DRAWS),
    }
    rows: dict[str, object] = {}
    for name, run in runs.items():
        run()  # type: ignore[no-untyped-call]
        samples = []
        for _ in range(SAMPLES):
            started = time.process_time()
            run()  # type: ignore[no-untyped-call]
            samples.append((time.process_time() - started) / DRAWS * 1e9)
        rows[name] = {"unit": "ns", **spread(samples)}
    return rows


BIG = """
import re, sys, time
from pathlib import Path
from endive.sim.config.configuration import load_configuration
from endive.sim.engines import simulate
settings = load_configuration(sys.argv[1], sys.argv[2:])
simulate(load_configuration(sys.argv[1], ["simulation.duration_ms=1000"]), 42)  # loads the compiled code
started = time.process_time()
rows = simulate(settings, 42).table.num_rows
took = time.process_time() - started
peak_kib = int(re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1])
print(took, peak_kib / 1024, rows)
"""


HALF = (
    "transaction.inter_arrival={ scale = 20 }",
    "transaction.operation_types={ fast_append = 0.5, validated_overwrite = 0.5 }",
)


def big_run() -> dict[str, object]:
    """180,000 transactions in one hour, half of them validated overwrites, in a process of its own."""
    samples = []
    for _ in range(SAMPLES):
        command = [sys.executable, "-c", BIG, BASE, *HALF]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        samples.append([float(number) for number in output])
    return {
        "overrides": list(HALF),
        "transactions": int(samples[0][2]),
        "cpu_s": spread([sample[0] for sample in samples]),
        "peak_mib": spread([sample[1] for sample in samples]),
        "note": "compiled code cached; time from configuration to Arrow table, memory of the process",
    }


CAPACITIES = (
    "capacity", "configs/capacity.toml", "--vary", "storage.provider=s3,s3x,azure,azurex,gcp", "--vary",
    "catalog.num_tables=1,10,20", "--json",
)  # fmt: skip


RUNS = """
import sys, time
from endive.sim.config.configuration import load_configuration
from endive.sim.engines import simulate
settings = load_configuration(sys.argv[1], sys.argv[2:])
simulate(load_configuration(sys.argv[1], ["simulation.duration_ms=1000"]), 42)  # loads the compiled code
for _ in range(3):
    started = time.process_time()
    simulate(settings, 42)
    print(time.process_time() - started)
"""


def cpu_s(tree: Path, is_first: bool, overrides: tuple[str, ...]) -> float:
    """Return the CPU seconds of one simulated hour in a checkout, the compiled code cached.

    The first run of a process also tabulates the sums of its distributions, which later runs reuse.
    """
    first, *later = map(float, run_in(tree, "-c", RUNS, "configs/fast_append_s3.toml", *overrides).split())
    return first if is_first else min(later)


def compare(before: Path) -> None:
    """Print and write the cases whose time the drawing of sums shortened, beside an older checkout."""
    overwrites = ("transaction.inter_arrival.median=50", OVERWRITES)
    rows = [
        beside(before, f"{name}, {which} of a process, CPU s", aim, partial(cpu_s, is_first=first, overrides=values))
        for name, aim, values in (
            ("180,000 transactions, half validated overwrites", 0.6, HALF),
            ("validated overwrite only, 50 ms", 0.05, overwrites),
        )
        for first, which in ((True, "first run"), (False, "later run"))
    ]
    rows.append(
        beside(
            before, "capacity of 5 providers x 3 table counts, CPU s with start", 10,
            lambda tree: cpu_s_of(tree, "-m", "endive", *CAPACITIES),
        )
    )  # fmt: skip
    print(f"wrote {save('engine_before', {'before': commit_of(before), 'cases': rows})}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an older checkout: compare with it, and nothing else")
    before = parser.parse_args().before
    if before:
        compare(before)
        return
    simulate(CASES[0].settings(60_000), SEED)  # compile first
    body = {
        "configuration": "configs/fast_append_s3.toml, with overrides; seed 42",
        "cases": [measure(case) for case in CASES],
        "nanoseconds_per_draw": nanoseconds_per_draw(),
        "hour_of_180000": big_run(),
    }
    print(f"wrote {save('engine', body)}")


if __name__ == "__main__":
    main()
