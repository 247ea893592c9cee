"""Real processes that share one store, some killed without warning, and what is left afterwards.

    python -m tests.store.sharing URL PROCESSES KILLS SEED

Every process has two threads; each increments a counter of its own and, in the same transaction, one that all share,
and notes what was acknowledged in a file. One thread runs a transaction function, the other calls a procedure, which
any of the processes may carry out. Some processes are stopped for a while. Every process compacts and collects. At the
end every counter holds what was acknowledged or one more, the common counter their sum, and the check finds nothing.
Prints one line of JSON.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from endive.kv import Store, StoreOptions, procedure
from endive.kv.maintenance.check import check_store
from endive.kv.transaction import Transaction
from endive.objects import open_objects
from endive.protocol.requests import Steps
from endive.rng import stream
from tests.store.killing import forked, killed

OPTIONS = StoreOptions(compact_entries=20, poll_interval_ms=20, collect_interval_ms=200, retention_ms=500)
THREADS = 2
PROGRESS_S = 20


def increment(key: bytes, transaction: Transaction) -> Steps[int]:
    """Increment a counter and the sum of all."""
    own = yield from transaction.get(b"own/" + key)
    total = yield from transaction.get(b"total")
    transaction.put(b"own/" + key, b"%d" % (int(own or b"0") + 1))
    transaction.put(b"total", b"%d" % (int(total or b"0") + 1))
    return int(own or b"0") + 1


@procedure("sharing.increment", 1)
def increment_by_call(tx: Transaction, key: bytes) -> Steps[bytes]:
    """Increment a counter and the sum of all, in whichever process."""
    count = yield from increment(key, tx)
    return b"%d" % count


def count_up(store: Store, key: str, log: Path, by_call: bool) -> None:
    """Increment for ever; note what was acknowledged."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        if by_call:
            count = int(store.call("sharing.increment", 1, key.encode()))
        else:
            count = store.transact(partial(increment, key.encode()))
        os.write(descriptor, f"{key} {count}\n".encode())


def member(url: str, name: str, directory: Path, endpoint: str | None) -> None:
    """Open the store and count in several threads."""
    store = Store(open_objects(url, endpoint=endpoint), "shared", OPTIONS)
    keys = [f"{name}-{os.getpid()}-{number}" for number in range(THREADS)]
    threads = [
        threading.Thread(target=count_up, args=(store, key, directory / key, number % 2 == 1))
        for number, key in enumerate(keys)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # for ever, unless something went wrong


def await_progress(directory: Path) -> None:
    """Return when something more was acknowledged: a slow server should be under load, too, when processes die."""
    noted = sum(file.stat().st_size for file in directory.iterdir())
    for _ in range(PROGRESS_S * 20):
        if sum(file.stat().st_size for file in directory.iterdir()) > noted:
            return
        time.sleep(0.05)


def share(url: str, processes: int, kills: int, seed: int, endpoint: str | None = None) -> dict[str, object]:
    """Let processes share a store and kill some of them, then look at what is left."""
    rng = stream(seed, "sharing")
    work: dict[str, int] = {}
    count = 0
    with tempfile.TemporaryDirectory() as directory:
        while count < kills:
            for number in range(processes):
                if str(number) not in work:
                    work[str(number)] = forked(partial(member, url, str(number), Path(directory), endpoint))
            stopped = sorted(work.values())[int(len(work) * rng.random())]
            os.kill(stopped, signal.SIGSTOP)
            await_progress(Path(directory))
            time.sleep(0.2 + 0.7 * rng.random())
            os.kill(stopped, signal.SIGCONT)
            left = killed(list(work.values()), rng)
            count += len(work) - len(left)
            work = {name: child for name, child in work.items() if child in left}
        for child in work.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        noted = [line.split() for file in sorted(Path(directory).iterdir()) for line in file.read_text().splitlines()]
    return {"kills": count, **verdict(url, endpoint, {key: int(number) for key, number in noted}, len(noted))}


def scan_own(transaction: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
    return (yield from transaction.scan(b"own/"))


def get_total(transaction: Transaction) -> Steps[int]:
    held = yield from transaction.get(b"total")
    return int(held or b"0")


def verdict(url: str, endpoint: str | None, acknowledged: dict[str, int], count: int) -> dict[str, object]:
    """Compare what was acknowledged with what is there."""
    with Store(open_objects(url, endpoint=endpoint), "shared", OPTIONS) as store:
        held = {key.decode().removeprefix("own/"): int(value) for key, value in store.read(scan_own)}
        total = store.read(get_total)
        faults = list(map(str, store.driver.run(check_store()).findings))
        epoch = store.stats()["epoch"]
    wrong = [key for key, number in acknowledged.items() if held.get(key, 0) not in (number, number + 1)]
    wrong += [key for key, number in held.items() if key not in acknowledged and number > 1]
    return {
        "acknowledged": count,
        "counters": len(held),
        "epoch": epoch,
        "wrong": wrong[:10],
        "total": total,
        "sum": sum(held.values()),
        "faults": faults[:10],
    }


if __name__ == "__main__":
    url, *numbers = sys.argv[1:5]
    print(json.dumps(share(url, *map(int, numbers), *sys.argv[5:])))  # type: ignore[arg-type]  # noqa: T201
