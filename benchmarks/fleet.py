"""The fleet of `configs/fleet.toml`: headroom, hot table, compaction and ranked advice, as the README shows them.

`python -m benchmarks.fleet` writes `results/fleet.json`; `--only run`, `capacity` or `advise` computes one part again
and keeps the others. The results depend on the seeds only, not on the machine.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import endive
from benchmarks.report import HERE, RESULTS, save
from endive.sim.results.capacity_results import CapacityResults

FILE = HERE.parent / "configs" / "fleet.toml"
HOURS = 4
"""Long enough for 48 compactions in the window of each seed."""
SEEDS = "1..5"
OVERRIDES = {"simulation.duration_ms": HOURS * 3_600_000}
METRICS = ("committed_per_s", "success", "retries_mean", "latency.all.p50_ms", "latency.all.p99_ms")
OF_TABLES = ("committed_per_s", "success", "retries_mean", "p99_ms")
GOAL = "compaction.success"


def run_part() -> dict[str, Any]:
    """Return the metrics of today's fleet: by class, and of the hottest tables."""
    found = endive.run(FILE, SEEDS, rows=False, overrides=OVERRIDES)
    metrics = {name: {"mean": one.mean, "half_width_95": one.half_width} for name, one in found.metrics.items()}
    tables = dict.fromkeys(name.split(".")[1] for name in metrics if name.startswith("tables."))
    return {
        "title": found.title,
        "notes": found.notes,
        "dollars_per_million_commits": metrics["dollars_per_million_commits"],
        "classes": {
            name: {metric: metrics[f"classes.{name}.{metric}"] for metric in METRICS} for name in found.settings.classes
        },
        "tables": {
            name: {
                metric: metrics[f"tables.{name}.{metric}"]
                for metric in OF_TABLES
                if f"tables.{name}.{metric}" in metrics
            }
            for name in tables
        },
    }


def capacity_part() -> dict[str, Any]:
    """Return how many writers the fleet takes until its streams, or its compaction, miss their targets."""
    targets = {"streams": ["streams.success>=0.95"], "compaction": ["compaction.success>=0.9"]}
    return {name: _answer(_capacity(texts)) for name, texts in targets.items()}


def _capacity(targets: list[str]) -> CapacityResults:
    return endive.capacity(
        FILE, over="streams.writers", targets=targets, seeds=SEEDS, tolerance=0.02, overrides=OVERRIDES
    )


def _answer(found: CapacityResults) -> dict[str, Any]:
    ((name, document),) = found.document().items()
    return {**document, "sentence": found.sentence(name)}


def advise_part() -> dict[str, Any]:
    """Return what improves the success of compaction, the best first."""
    found = endive.advise(FILE, goal=GOAL, seeds=SEEDS, overrides=OVERRIDES)
    document = found.document()
    names = (GOAL, "streams.p99_ms", "p99_ms", "requests_per_commit", "dollars_per_million_commits")
    rows = [
        {
            **{key: one[key] for key in ("rank", "kind", "advice", "verdict", "confidence", "effect", "caveat")},
            "after": {name: one["after"].get(name) for name in names},
        }
        for one in document["advice"]  # type: ignore[attr-defined]
    ]
    today = {name: document["today"].get(name) for name in names}  # type: ignore[attr-defined]
    return {"goal": GOAL, "today": today, "sentences": found.sentences(), "rows": rows}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"run": run_part, "capacity": capacity_part, "advise": advise_part}


def main() -> None:
    """Compute all parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), action="append")
    chosen = parser.parse_args().only or list(PARTS)
    path = RESULTS / "fleet.json"
    known = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else {}
    for name in chosen:
        known[name] = PARTS[name]()
        print(save("fleet", {"parameters": {"hours": HOURS, "seeds": SEEDS}, "parts": known}, [name]), name)


if __name__ == "__main__":
    main()
