"""Real processes on a real store, killed without warning, and what is left afterwards.

    python -m tests.store.killing URL KILLS SEED

Two writers fight for the store: whoever is fenced opens it again. A third process compacts and collects. Each appends
what the store has acknowledged to a file of its own; all of them are killed with SIGKILL again and again. At the end
every acknowledged write must be there, and the check must find nothing. Prints one line of JSON.

A program of its own, because it forks: a child starts in milliseconds, so that most of the time is under load.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from endive.errors import EndiveError, FencedError
from endive.kv import Store, StoreOptions
from endive.kv.maintenance.check import check_store
from endive.objects import open_objects
from endive.rng import Stream, stream

OPTIONS = StoreOptions(compact_here=False, poll_interval_ms=50, flush_interval_ms=2, max_parallel_writes=2)


def write(url: str, name: str, log: Path, endpoint: str | None) -> None:
    """Write rows for ever; note each that was acknowledged."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number = 0
    while True:
        try:
            store = Store(open_objects(url, endpoint=endpoint), options=OPTIONS)
            while True:
                number += 1
                key = f"{name}-{os.getpid()}-{number}"
                store.write([(key.encode(), key.encode()), (f"{key}+".encode(), key.encode()), (b"last", key.encode())])
                os.write(descriptor, f"{key}\n".encode())
        except FencedError:
            time.sleep(0.02)


def keep_house(url: str, endpoint: str | None) -> None:
    """Compact and collect for ever."""
    from endive.drivers.blocking import BlockingDriver
    from endive.kv.maintenance.compactor import compact_levels, compact_wal
    from endive.kv.maintenance.garbage_collector import collect_garbage
    from tests.store_protocols import claim_compactor

    driver = BlockingDriver(open_objects(url, endpoint=endpoint))
    while True:
        try:
            epoch = driver.run(claim_compactor())
            for _ in range(20):
                driver.run(compact_wal(epoch))
                driver.run(compact_levels(epoch))
                driver.run(collect_garbage(retention_ms=500))
                time.sleep(0.03)
        except EndiveError:
            time.sleep(0.02)


def forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)  # a child never ends by itself
    return child


def killed(children: list[int], rng: Stream) -> list[int]:
    """Kill one child, or all of them; return those that are left."""
    victims = children if rng.random() < 0.2 else [children[int(rng.random() * len(children))]]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
        _, status = os.waitpid(victim, 0)
        if os.WIFEXITED(status):
            raise SystemExit(f"process {victim} ended by itself with code {os.WEXITSTATUS(status)}")
    return [child for child in children if child not in victims]


def fight(url: str, kills: int, seed: int, endpoint: str | None = None) -> dict[str, object]:
    """Kill processes `kills` times, then look at what is left."""
    rng = stream(seed, "killing")
    work: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory)
        starts: dict[str, Callable[[], None]] = {
            "a": lambda: write(url, "a", log / "a", endpoint),
            "b": lambda: write(url, "b", log / "b", endpoint),
            "house": lambda: keep_house(url, endpoint),
        }
        count = 0
        while count < kills:
            for name, start in starts.items():
                if name not in work:
                    work[name] = forked(start)
            time.sleep(0.05 + 0.3 * rng.random() ** 2)
            left = killed(list(work.values()), rng)
            count += len(work) - len(left)
            work = {name: child for name, child in work.items() if child in left}
        for child in work.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        acknowledged = [key for file in sorted(log.iterdir()) for key in file.read_text().splitlines()]
    with Store(open_objects(url, endpoint=endpoint), options=OPTIONS) as store:
        held = dict(store.scan())
        missing = [key for key in acknowledged if held.get(key.encode()) != key.encode()]
        missing += [key for key in acknowledged if held.get(f"{key}+".encode()) != key.encode()]
        torn = [key.decode() for key in held if not key.endswith(b"+") and key != b"last" and key + b"+" not in held]
        faults = list(map(str, store.driver.run(check_store()).findings))
        epoch = store.epoch
    return {
        "kills": count,
        "acknowledged": len(acknowledged),
        "rows": len(held),
        "epoch": epoch,
        "missing": missing[:10],
        "torn": torn[:10],
        "faults": faults[:10],
    }


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(json.dumps(fight(arguments[0], int(arguments[1]), int(arguments[2]), *arguments[3:])))  # noqa: T201
