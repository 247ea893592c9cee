"""Maintenance, restore and clone, killed in the middle: every table of every catalog is intact.

    python -m tests.catalog.killing_maintenance DIRECTORY '{"action": "clone", "kills": 100, "seed": 1}'

In every round one process does the action again and again, and is killed with SIGKILL at a moment that the seed draws.
Another process then looks at all tables, at the checkpoints and at the clones, and writes a little more. Prints one
line of JSON: how many kills there were, how many of them hit the action, and what was found.

A program of its own, because it forks (`tests.catalog.killing`).
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyiceberg.io.pyarrow  # noqa: F401 - takes seconds, and each child would import it again

from endive.catalog import KVCatalog, MaintenanceOptions
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CatalogNotFoundError, ConfigurationError
from endive.rng import stream
from tests.catalog.commits.interrupted import rows_of
from tests.catalog.killing import forked, kill
from tests.catalog.tables import NUMBERS, numbers

NAMES = ("db.a", "db.b")
AGED = {
    "history.expire.max-snapshot-age-ms": "0",
    "commit.manifest.min-count-to-merge": "2",
    "write.metadata.previous-versions-max": "2",
}
EVERYTHING = MaintenanceOptions(orphan_age_ms=-(10**15))
"""Orphans of any age: no process writes during a maintenance here."""
BASE, NOW = "base", "now"
Rows = dict[str, list[int]]


@dataclass(frozen=True)
class Plan:
    """What is killed, and how often."""

    action: str
    kills: int
    seed: int = 1


def opened(directory: Path, name: str = "lake", at: str = "") -> KVCatalog:
    return KVCatalog.open(str(directory / name), properties={"endive.at": at} if at else {})


def rows_in(kv: KVCatalog) -> Rows:
    catalog = EndiveCatalog.on(kv)
    return {name: rows_of(catalog.load_table(name)) for name in NAMES}


def prepare(directory: Path) -> None:
    with KVCatalog.create(str(directory / "lake")) as kv:
        kv.create_namespace("db")
        catalog = EndiveCatalog.on(kv)
        for name in NAMES:
            table = catalog.create_table(name, NUMBERS, properties=AGED)
            for number in (1, 2, 3):
                table.append(numbers(number))
        kv.create_checkpoint(BASE)
        write_more(kv, 0)
        (directory / "expected").write_text(json.dumps({BASE: rows_in(opened(directory, at=BASE)), NOW: rows_in(kv)}))


def write_more(kv: KVCatalog, number: int) -> None:
    """Change every table, and name the state."""
    catalog = EndiveCatalog.on(kv)
    for name in NAMES:
        table = catalog.load_table(name)
        table.delete(f"n = {99 + number}")
        table.append(numbers(100 + number))
    if NOW in {one.name for one in kv.checkpoints()}:
        kv.delete_checkpoint(NOW)
    kv.create_checkpoint(NOW)


# What is killed.


def maintaining(directory: Path) -> None:
    with opened(directory) as kv:
        kv.maintain(EVERYTHING)


def restoring(directory: Path) -> None:
    with opened(directory) as kv:
        kv.restore(BASE)
        kv.restore(NOW)


def cloning(directory: Path) -> None:
    with opened(directory) as kv:
        kv.clone(str(directory / f"clone-{len(list(directory.glob('clone-*')))}"), checkpoint=NOW)


ACTIONS: dict[str, Callable[[Path], None]] = {"maintain": maintaining, "restore": restoring, "clone": cloning}


def act(directory: Path, action: str) -> None:
    """Do an action until this process is killed; note each beginning and end."""
    while True:
        (directory / "doing").write_text("")
        ACTIONS[action](directory)
        (directory / "doing").unlink()


# What is looked at.


def look(directory: Path, plan: Plan, number: int) -> None:
    """Write down what is wrong; then let the catalog go on."""
    expected = json.loads((directory / "expected").read_text())
    problems: list[str] = []
    with opened(directory) as kv:
        found = rows_in(kv)
        if found not in ([expected[BASE], expected[NOW]] if plan.action == "restore" else [expected[NOW]]):
            problems.append(f"round {number}: {found} instead of {expected[NOW]}")
        problems += [f"round {number}: {finding}" for finding in kv.check()]
        for name in (BASE, NOW):
            with opened(directory, at=name) as past:
                if rows_in(past) != expected[name]:
                    problems.append(f"round {number}: checkpoint {name} has {rows_in(past)}")
                problems += [f"round {number}: checkpoint {name}: {finding}" for finding in past.check()]
        problems += _look_at_clones(directory, kv, expected[NOW], number)
        if plan.action == "restore":
            kv.restore(NOW)
        for one in kv.checkpoints():
            if one.name.startswith("before-restore-"):
                kv.delete_checkpoint(one.name)
        write_more(kv, number)
        expected[NOW] = rows_in(kv)
    (directory / "expected").write_text(json.dumps(expected))
    with (directory / "problems").open("a") as file:
        file.writelines(f"{one}\n" for one in problems)


def _look_at_clones(directory: Path, kv: KVCatalog, expected: Rows, number: int) -> list[str]:
    """Finish the clone that was interrupted, use every clone, and delete it."""
    problems: list[str] = []
    for place in sorted(directory.glob("clone-*")):
        try:
            opened(directory, place.name).close()
        except (CatalogNotFoundError, ConfigurationError):
            kv.clone(str(place), checkpoint=NOW)
        with opened(directory, place.name) as clone:
            if rows_in(clone) != expected:
                problems.append(f"round {number}: {place.name} has {rows_in(clone)}")
            EndiveCatalog.on(clone).load_table(NAMES[0]).append(numbers(7))
            kv.maintain(EVERYTHING)
            clone.maintain(EVERYTHING)
            if rows_in(clone) != {**expected, NAMES[0]: sorted([*expected[NAMES[0]], 7])} or clone.check():
                problems.append(f"round {number}: {place.name} has {rows_in(clone)} and {clone.check()}")
        shutil.rmtree(place)
    for one in kv.checkpoints():
        if one.clone_url:
            kv.delete_checkpoint(one.name, force=True)
    return problems


def run_child(action: Callable[[], None]) -> None:
    _, status = os.waitpid(forked(action, code=0), 0)
    if status:
        raise SystemExit("a process failed that nobody killed")


def fight(directory: Path, plan: Plan) -> dict[str, object]:
    """Let a process act and kill it, and look at what is left, round by round."""
    run_child(lambda: prepare(directory))
    began_s = time.monotonic()
    run_child(lambda: ACTIONS[plan.action](directory))
    usual_s = time.monotonic() - began_s
    rng = stream(plan.seed, "killing maintenance")
    hits = 0
    for number in range(1, plan.kills + 1):
        child = forked(lambda: act(directory, plan.action))
        while not (directory / "doing").exists():
            time.sleep(0.002)
        time.sleep(usual_s * rng.random())
        kill(child)
        hits += (directory / "doing").exists()
        (directory / "doing").unlink(missing_ok=True)
        run_child(lambda number=number: look(directory, plan, number))  # type: ignore[misc]
    problems = (directory / "problems").read_text().splitlines()
    return {"kills": plan.kills, "hits": hits, "problems": problems[:20]}


if __name__ == "__main__":
    print(json.dumps(fight(Path(sys.argv[1]), Plan(**json.loads(sys.argv[2])))))  # noqa: T201
