"""Commits a second of a shared store whose object store answers like a remote one: threads of one process, and members.

The object store is in memory and waits: 61 ms for a create, and for everything else nothing or 30 ms. Works are
trivial: read a counter, write it. Threads are in a closed loop. Members are in one process here, each with a
`Store` of its own; the WAL does not know the difference.

    python -m benchmarks.shared        # writes results/shared.json
"""

import threading
import time
from collections.abc import Sequence
from functools import partial
from statistics import median, quantiles

from benchmarks.report import save
from endive.kv import Store
from endive.kv.transaction import Transaction
from endive.objects import MemoryStore
from endive.protocol.requests import Steps
from endive.rng import Stream
from endive.testing import FaultInjectingStore, FaultProbabilities

CREATE_MS = 61.0
READS_MS = (0.0, 30.0)
THREADS = (1, 8, 64, 256)
MEMBERS = (2, 4, 8, 16)
THREADS_OF_A_MEMBER = 4
DURATION_S = 10.0


def delay_ms(read_ms: float, operation: str, size_bytes: int, rng: Stream) -> float:  # noqa: ARG001
    """Return the milliseconds of one request, give or take a tenth."""
    return (CREATE_MS if operation == "cas" else read_ms) * (0.9 + 0.2 * rng.random())


def increment(key: bytes, transaction: Transaction) -> Steps[None]:
    held = yield from transaction.get(key)
    transaction.put(key, b"%d" % (int(held or b"0") + 1))


def commit_for_a_while(store: Store, key: bytes, until_s: float, latencies_ms: list[float]) -> None:
    while time.perf_counter() < until_s:
        start = time.perf_counter()
        store.transact(partial(increment, key))
        latencies_ms.append((time.perf_counter() - start) * 1000)


def measure(members: int, threads: int, read_ms: float) -> dict[str, object]:
    """Let `threads` threads of each of `members` members commit, and say how that went."""
    objects = MemoryStore()
    stores = [
        Store(FaultInjectingStore(objects, n, FaultProbabilities(), partial(delay_ms, read_ms)), "shared")
        for n in range(members)
    ]
    latencies: list[list[float]] = [[] for _ in stores]
    until_s = time.perf_counter() + DURATION_S
    workers = [
        threading.Thread(target=commit_for_a_while, args=(store, b"%d/%d" % (place, number), until_s, latencies[place]))
        for place, store in enumerate(stores)
        for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = figures(latencies, max(store.stats()["wal_end"] for store in stores))
    for store in stores:
        store.close()
    return {"members": members, "threads": threads, "read_ms": read_ms, **found}


def figures(latencies: Sequence[list[float]], slots: int) -> dict[str, float]:
    every = sorted(one for member in latencies for one in member)
    return {
        "commits/s": len(every) / DURATION_S,
        "slots/s": slots / DURATION_S,
        "p50_ms": median(every),
        "p99_ms": quantiles(every, n=100)[98] if len(every) > 1 else every[0],
        "least_of_a_member/s": min(map(len, latencies)) / DURATION_S,
        "most_of_a_member/s": max(map(len, latencies)) / DURATION_S,
    }


def main() -> None:
    rows = [measure(1, threads, read_ms) for read_ms in READS_MS for threads in THREADS]
    rows += [measure(members, THREADS_OF_A_MEMBER, READS_MS[1]) for members in MEMBERS]
    for row in rows:
        print({name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()})
    save("shared", {"parameters": {"create_ms": CREATE_MS, "duration_s": DURATION_S}, "rows": rows})


if __name__ == "__main__":
    main()
