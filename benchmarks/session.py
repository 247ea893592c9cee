"""Starting Spark: how long until the first task has answered, and what each measure saves.

Every variant is a process of its own that starts a session, does what a sweep does beside it (load the engine, plan a
group), and runs one small job. Variants alternate, so that a change of the machine's load meets all of them.

    plain        one after the other, with the settings of any session
    light        with the settings of a sweep
    archive      also with the archive of Spark's classes
    background   also while the engine loads and the plan is made
    lean         also without Spark SQL and the data source: what `endive sweep` does
    warm         a second job of a session that is there already

`python -m benchmarks.session` writes `results/session.json`; `--only light archive` measures some variants again.
`--short` measures each once and prints the seconds without writing them.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import HERE, RESULTS, save, spread

GROUP = HERE.parent / "configs" / "sweeps" / "published" / "mix.toml"
REPEATS = 5
VARIANTS = ("plain", "light", "archive", "background", "lean", "warm")


def child(variant: str) -> None:
    """Run one variant and print its seconds: the work of the other process."""
    started = time.perf_counter()
    from endive.pipeline.sweep import LIGHT, plan_sweep  # noqa: PLC0415 - loading is part of it
    from endive.spark.session import spark_session  # noqa: PLC0415
    from endive.spark.starting import StartingSession  # noqa: PLC0415

    settings = {} if variant == "plain" else LIGHT
    if variant in ("background", "lean", "warm"):
        sources = variant == "background"
        with StartingSession(spark_session(settings=settings, sources=sources), sources) as starting:
            prepare(lambda: plan_sweep(str(GROUP)))
            spark = starting.session()
            first_job(spark)
            if variant == "warm":
                started = time.perf_counter()
                first_job(spark)
            print(time.perf_counter() - started)
        return
    prepare(lambda: plan_sweep(str(GROUP)))
    with spark_session(settings=settings) as spark:
        first_job(spark)
        print(time.perf_counter() - started)


def prepare(plan: Callable[[], object]) -> None:
    """Do what a sweep does before its first task."""
    from endive.sim.engines import is_cold  # noqa: PLC0415

    is_cold()
    plan()


def first_job(spark: object) -> None:
    context = spark.sparkContext  # type: ignore[attr-defined]
    if context.parallelize(range(4), 4).map(lambda n: n + 1).sum() != 10:
        raise SystemExit("Spark computed something else")


def measured(variant: str) -> tuple[float, float]:
    """Return the seconds until the first task has answered, and the processor time of all processes to the end."""
    words = [sys.executable, "-m", "benchmarks.session", "--child", variant]
    variables = {**os.environ, "ENDIVE_CLASS_ARCHIVE": "0" if variant in ("plain", "light") else "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=variables, cwd=HERE.parent)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(done.stdout.split()[-1]), cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--short", action="store_true", help="each variant once; nothing is written")
    parser.add_argument("--child", choices=VARIANTS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.child)
        return
    measured("archive")  # the first session of a machine writes the archive
    samples: dict[str, list[tuple[float, float]]] = {variant: [] for variant in chosen.only}
    for _ in range(1 if chosen.short else REPEATS):
        for variant in chosen.only:
            samples[variant].append(measured(variant))
    found = {
        kind: {name: spread([pair[place] for pair in pairs]) for name, pairs in samples.items()}
        for place, kind in enumerate(("seconds", "cpu_seconds"))
    }
    if chosen.short:
        print(json.dumps(found, indent=2))
        return
    path = Path(RESULTS) / "session.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    body = {
        "unit": "seconds until the first task has answered; processor time of all processes to the end of the session",
        **{kind: {**before.get(kind, {}), **values} for kind, values in found.items()},
        "load_average": [round(load, 1) for load in os.getloadavg()],
    }
    print(save("session", body, chosen.only).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
