"""Real processes on one catalog in a directory, killed without warning, and what is left afterwards.

    python -m tests.catalog.killing DIRECTORY '{"processes": 4, "threads": 1, "tables": 1, "kills": 8, "seed": 1}'

Processes append rows and change properties through PyIceberg. One after the other is killed with SIGKILL at a moment
that the seed draws, and another takes its place; never before something was acknowledged since the last kill, so that
a slow machine does as much as a fast one. Prints one line of JSON: the verdict (`tests.catalog.load`).

A program of its own, because it forks: a child starts in milliseconds, so that most of the time is under load. The
parent uses neither Arrow nor the catalog before the last child is gone.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Thread

import pyiceberg.io.pyarrow  # noqa: F401 - takes seconds, and each child would import it again

from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.drivers.blocking import BlockingDriver
from endive.kv.maintenance.check import check_store
from endive.objects import open_objects
from endive.rng import stream
from tests.catalog.load import ACKNOWLEDGED, SCHEMA, judge, write

PATIENCE_S = 120.0


@dataclass(frozen=True)
class Plan:
    """How hard it is tried."""

    processes: int
    threads: int = 1
    tables: int = 1
    kills: int = 8
    pause_s: float = 0.3
    """From an acknowledgement to the next kill, on average."""
    mode: str = "before-acknowledgement"
    writer: str = "shared"
    beside: bool = False
    """Whether metadata files are written beside their records, as in a bucket."""
    seed: int = 1

    def table_of(self, writer: int) -> str:
        return f"db.t{writer % self.tables}"


def opened(directory: Path, plan: Plan) -> EndiveCatalog:
    properties = {"endive.metadata-json": plan.mode, "endive.writer": plan.writer}
    if plan.beside:
        properties["py-io-impl"] = "tests.catalog.whole_files.WholeFileIO"
    return EndiveCatalog("killed", uri=str(directory / "lake"), **properties)


def prepare(directory: Path, plan: Plan) -> None:
    with closing(opened(directory, plan)) as catalog:
        catalog.create_namespace("db")
        for number in range(plan.tables):
            catalog.create_table(f"db.t{number}", SCHEMA)


def work(directory: Path, plan: Plan, process: int) -> None:
    """Write until this process is killed."""
    catalog = opened(directory, plan)
    descriptor = os.open(directory / f"journal-{process}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    note: Callable[[str], int] = lambda line: os.write(descriptor, line.encode())  # noqa: E731
    threads = []
    for number in range(plan.threads):
        place = process * plan.threads + number
        arguments = (catalog, plan.table_of(place), f"{place}-{os.getpid()}", note, count(1))
        threads.append(Thread(target=_or_die, args=(partial(write, *arguments),)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _or_die(action: Callable[[], None]) -> None:
    """An error in any thread ends the process, which the parent takes as a failure."""
    try:
        action()
    except BaseException:  # noqa: BLE001 - any error is a failure
        sys.excepthook(*sys.exc_info())
        os._exit(3)


def forked(action: Callable[[], None], code: int = 3) -> int:
    child = os.fork()
    if child == 0:
        try:
            action()
            sys.stderr.flush()
            os._exit(code)
        except BaseException:  # noqa: BLE001 - any error is a failure
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(3)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        raise SystemExit(f"process {child} ended by itself with code {os.WEXITSTATUS(status)}")


def lines_of(directory: Path) -> list[str]:
    return [line for file in sorted(directory.glob("journal-*")) for line in file.read_text().splitlines()]


def await_progress(directory: Path) -> None:
    """Wait until something more has been acknowledged."""
    before = sum(line.startswith(ACKNOWLEDGED) for line in lines_of(directory))
    deadline_s = time.monotonic() + PATIENCE_S
    while sum(line.startswith(ACKNOWLEDGED) for line in lines_of(directory)) == before:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"nothing was acknowledged in {PATIENCE_S:.0f} seconds")
        time.sleep(0.02)


def fight(directory: Path, plan: Plan) -> dict[str, object]:
    """Let processes write and kill them, then judge what is left."""
    _, status = os.waitpid(forked(lambda: prepare(directory, plan), code=0), 0)
    if status:
        raise SystemExit("the tables could not be created")
    rng = stream(plan.seed, "killing")
    children = [forked(lambda one=one: work(directory, plan, one)) for one in range(plan.processes)]  # type: ignore[misc]
    kills = 0
    while kills < plan.kills:
        await_progress(directory)
        time.sleep(2 * plan.pause_s * rng.random())
        victim = int(rng.random() * plan.processes)
        kill(children[victim])
        kills += 1
        children[victim] = forked(lambda victim=victim: work(directory, plan, victim))  # type: ignore[misc]
    await_progress(directory)
    for child in children:
        kill(child)
        kills += 1
    return {"kills": kills, **verdict(directory, plan)}


def verdict(directory: Path, plan: Plan) -> dict[str, object]:
    with closing(opened(directory, plan)) as catalog:
        found = judge(catalog, lines_of(directory))
        stats = catalog.kv.store.stats()  # type: ignore[attr-defined]
    driver = BlockingDriver(open_objects(str(directory / "lake" / "_endive")))
    damage = [str(fault) for fault in driver.run(check_store()).findings]
    driver.close()
    return {**asdict(found), "faults": found.faults[:20] + damage[:20], "slots": stats["wal_end"]}


if __name__ == "__main__":
    print(json.dumps(fight(Path(sys.argv[1]), Plan(**json.loads(sys.argv[2])))))  # noqa: T201
