"""Compare two checkouts of Endive on the same machine, in turns: one table, before and after.

    python -m benchmarks.before_after ../endive-before     # writes results/before_after.json and prints a table

The other checkout needs its own environment (`make install` there). Each probe below is a short program that runs in
both checkouts alternately, so that a busy moment of the machine affects both, and prints its metrics as JSON. Probes
use only functions that both checkouts have.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path
from statistics import median

from benchmarks.report import HERE, RESULTS, save

ROUNDS = 3
PROBES = {
    "store, local directory": """
from benchmarks import store
from endive.objects import LocalStore
with store.directory() as path:
    metrics = store.endive(LocalStore(path / "store", fsync=False))
""",
    "store, latencies of S3": """
from benchmarks import store
with store.directory() as path:
    found = store.endive(store.with_latencies_of("s3", path / "store"), 40)
metrics = {name: found[name] for name in ("durable put p50, ms", "durable puts, 32 threads, /s")}
""",
    "catalog, local directory, 8 threads, metadata-only": """
from benchmarks import catalog as peers
from benchmarks.catalog_load import run
metrics = {}
for subject in (peers.BEFORE, peers.BACKGROUND, peers.EXCLUSIVE):
    for tables in ("distinct", "one"):
        with peers.opened(subject) as catalog:
            names = [f"db.t{0 if tables == 'one' else place}" for place in range(8)]
            metrics[f"{subject}, {tables}, /s"] = run(catalog, "metadata-only", names, 2.0)["commits_per_s"]
""",
    "catalog, local directory, 8 threads, appends": """
from benchmarks import catalog as peers
from benchmarks.catalog_load import run
metrics = {}
for subject in (peers.BEFORE, peers.BACKGROUND):
    for tables in ("distinct", "one"):
        with peers.opened(subject) as catalog:
            names = [f"db.t{0 if tables == 'one' else place}" for place in range(8)]
            metrics[f"{subject}, {tables}, /s"] = run(catalog, "append", names, 4.0)["commits_per_s"]
""",
    "catalog, latencies of S3, KVCatalog, a table each": """
from benchmarks import catalog_s3 as s3
s3.SECONDS = 6.0
metrics = {
    f"{writer}, {committers} committers, /s": s3.directly("background", writer, committers)["commits_per_s"]
    for writer in ("exclusive", "shared") for committers in (1, 64, 256)
}
""",
    "catalog, latencies of S3, default mode, KVCatalog, a table each": """
from benchmarks import catalog_s3 as s3
s3.SECONDS = 6.0
metrics = {
    f"{writer}, 64 committers, /s": s3.directly("before-acknowledgement", writer, 64)["commits_per_s"]
    for writer in ("exclusive", "shared")
}
""",
    "compiled engine, one simulated hour": """
from benchmarks import engine
engine.timed_run(engine.CASES[0].settings(60_000), "compiled")
metrics = {
    f"{case.name}, CPU s": min(engine.timed_run(case.settings(engine.HOUR_MS), "compiled")[0] for _ in range(2))
    for case in engine.CASES
}
""",
}


def probe(checkout: Path, program: str) -> dict[str, float]:
    """Run a probe in a checkout; return its metrics."""
    command = [str(checkout / ".venv/bin/python"), "-c", f"import json\n{program}\nprint('\\n' + json.dumps(metrics))"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(before: Path, after: Path, program: str, rounds: int) -> dict[str, dict[str, object]]:
    """Run a probe in both checkouts in turns; return the samples, medians and ratio of each metric."""
    samples: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for side, checkout in (("before", before), ("after", after)):
            for name, value in probe(checkout, program).items():
                samples.setdefault(name, {"before": [], "after": []})[side].append(value)
    return {name: _row(name, found) for name, found in samples.items() if all(found.values())}


def _row(name: str, samples: dict[str, list[float]]) -> dict[str, object]:
    before, after = median(samples["before"]), median(samples["after"])
    faster = after / before if "/s" in name else before / after
    return {"before": before, "after": after, "times_as_fast": round(faster, 2), "samples": samples}


def table(results: dict[str, dict[str, dict[str, object]]]) -> str:
    """Return the medians as a Markdown table."""
    lines = ["| probe | metric | before | after | times as fast |", "|---|---|---:|---:|---:|"]
    for name, rows in results.items():
        for metric, row in rows.items():
            lines.append(f"| {name} | {metric} | {row['before']:,.4g} | {row['after']:,.4g} | {row['times_as_fast']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", help="probes whose name contains this text; results of the others are kept")
    arguments = parser.parse_args()
    stored = RESULTS / "before_after.json"
    kept = json.loads(stored.read_text(encoding="utf-8"))["results"] if arguments.only and stored.exists() else {}
    load_before = os.getloadavg()[0]
    chosen = [name for name in PROBES if not arguments.only or arguments.only in name]
    for name in chosen:
        kept[name] = compare(arguments.before.resolve(), HERE.parent, PROBES[name], arguments.rounds)
    of = subprocess.run(
        ["git", "-C", arguments.before, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    )
    body = {"before": of.stdout.strip(), "rounds": arguments.rounds, "results": kept}
    print(table(kept))
    print(save("before_after", {**body, "load": {"before": load_before, "after": os.getloadavg()[0]}}, chosen))


if __name__ == "__main__":
    main()
