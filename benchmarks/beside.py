"""Programs that run in turns in an older checkout and in this one, so that a busy moment of the machine affects both.

The older checkout needs no environment: its package runs with this one's libraries.

    git clone . ../endive-before && git -C ../endive-before checkout 8359efc    # the commit before sums were drawn
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import HERE, spread

HERE_TREE = HERE.parent


def commit_of(tree: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run_in(tree: Path, *words: str) -> str:
    """Run Python with the package of a checkout, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def cpu_s_of(tree: Path, *words: str) -> float:
    """Return the CPU seconds of such a process, with those that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_in(tree, *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beside(before: Path, name: str, aim: float, measure: Callable[[Path], float], rounds: int = 3) -> dict[str, object]:
    """Measure in both checkouts, in turns, after one unmeasured round; print and return a row of the table."""
    samples: dict[str, list[float]] = {"before": [], "now": []}
    for number in range(rounds + 1 if rounds > 1 else 1):
        for which, tree in (("before", before), ("now", HERE_TREE)):
            found = measure(tree)
            if number or rounds == 1:
                samples[which].append(found)
    row = {"case": name, "aim": aim, **{which: spread(found) for which, found in samples.items()}}
    medians = {which: sorted(found)[len(found) // 2] for which, found in samples.items()}
    print(f"{name:62} before {medians['before']:8.2f}  now {medians['now']:8.2f}  aim {aim:g}", flush=True)
    return row
