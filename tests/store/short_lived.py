"""Processes that each live for one commit, several at a time, some killed without warning, and what is left afterwards.

    python -m tests.store.short_lived URL PROCESSES KILLS SEED [ENDPOINT]

Every process opens the store, increments a counter in one transaction, notes what was acknowledged, closes the store
and ends. Nobody else maintains it. At the end the counter holds every acknowledged increment, the check finds
nothing, the WAL is short, and opening took as few round trips at the end as at the beginning. Prints one line of JSON.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from endive.kv import Store, StoreOptions
from endive.kv.log.wal import WAL, is_fence
from endive.kv.maintenance.check import check_store
from endive.kv.transaction import Transaction
from endive.objects import open_objects
from endive.protocol.requests import Steps
from endive.rng import stream

OPTIONS = StoreOptions(compact_entries=32, retention_ms=1000, maintenance_lease_s=5)
AT_ONCE = 4


def increment(own: bytes, transaction: Transaction) -> Steps[int]:
    held = yield from transaction.get(b"total")
    transaction.put(b"total", b"%d" % (int(held or b"0") + 1))
    transaction.put(b"own/" + own, b"")
    return int(held or b"0") + 1


def live(url: str, endpoint: str | None, name: str, log: Path) -> None:
    """Open the store, commit once, note the acknowledgement and the round trips of opening, close the store."""
    with Store(open_objects(url, endpoint=endpoint), "shared", OPTIONS) as store:
        opened = store.driver.requests.sequential
        store.transact(lambda transaction: increment(name.encode(), transaction))
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{name} {opened}\n".encode())


def born(url: str, endpoint: str | None, name: str, log: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            live(url, endpoint, name, log)
        except BaseException as error:  # noqa: BLE001 - the parent counts it
            sys.stderr.write(f"{name}: {error!r}\n")
            os._exit(1)
        os._exit(0)
    return child


def run(url: str, processes: int, kills: int, seed: int, endpoint: str | None = None) -> dict[str, object]:
    """Let processes live one after the other, a few at a time, and kill some; then look at what is left."""
    rng = stream(seed, "short-lived")
    alive: list[int] = []
    failed = killed = 0
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        for number in range(processes):
            child = born(url, endpoint, f"{number:06d}", log)
            alive.append(child)
            if killed < kills and number and rng.random() < 2 * kills / processes:
                time.sleep(0.3 * rng.random())
                os.kill(child, signal.SIGKILL)
                killed += 1
            while len(alive) >= (AT_ONCE if number else 1):  # the first one makes the store
                _, status = os.waitpid(alive.pop(0), 0)
                failed += os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
        for child in alive:
            os.waitpid(child, 0)
        noted = [line.split() for line in log.read_text().splitlines()]
    return {"processes": processes, "killed": killed, "failed": failed, **verdict(url, endpoint, noted)}


def verdict(url: str, endpoint: str | None, noted: list[list[str]]) -> dict[str, object]:
    """Compare what was acknowledged with what is there."""
    objects = open_objects(url, endpoint=endpoint)
    with Store(objects, "shared", StoreOptions(compact_here=False)) as store:
        own = {key.decode().removeprefix("own/") for key, _ in store.scan(prefix=b"own/")}
        total = int(store.get(b"total") or b"0")
        findings = list(map(str, store.driver.run(check_store()).findings))
        runs = len(store.manifest.value.runs)
    opened = [int(count) for _, count in noted[1:]]
    return {
        "acknowledged": len(noted),
        "lost": sorted({name for name, _ in noted} - own)[:10],
        "total": total,
        "rows": len(own),
        "findings": findings[:10],
        "wal_objects": sum(not is_fence(info) for info in objects.list(WAL.prefix)),
        "manifests": len(objects.list("manifest/")),
        "ssts": len(objects.list("levels/")),
        "runs": runs,
        "round_trips_first": median(opened[: len(opened) // 10 + 1]),
        "round_trips_last": median(opened[-(len(opened) // 10 + 1) :]),
        "round_trips_max": max(opened),
    }


if __name__ == "__main__":
    url, *numbers = sys.argv[1:5]
    print(json.dumps(run(url, *map(int, numbers), *sys.argv[5:])))  # type: ignore[arg-type]  # noqa: T201
