"""Processes that commit at the same time and help each other.

    python -m benchmarks.helping                      # everything
    python -m benchmarks.helping --only virtual       # one part: virtual, local, s3, seaweed
    python -m benchmarks.helping --only s3 --processes 8 --seconds 10

`virtual` runs the store's protocols in virtual time, with latencies around 61 ms for a write and 30 ms for anything
else, one call at a time from each process: helping, and racing for entries as transaction functions did before. `local`
runs processes on a local directory, beside PyIceberg's SqlCatalog on SQLite, in turns. `s3` runs processes on a local
directory where every request takes as long as on S3, and `seaweed` on a bucket of SeaweedFS with the same delay. Both
run again with some of the processes stopped for a while, and some killed; every acknowledged commit must be there once.
"""

import argparse
import tempfile
from collections.abc import Iterator
from math import exp
from pathlib import Path
from statistics import NormalDist, median, quantiles
from typing import Any

from benchmarks.catalog_load import APPEND, METADATA
from benchmarks.catalog_s3 import CREATE_MS, READ_MS
from benchmarks.helping_processes import Row, run
from benchmarks.report import save
from endive.catalog.connection import OPTIONS
from endive.kv import Store, procedure
from endive.kv.log.combining import Contention, commit_calls
from endive.kv.log.committing import commit_batch
from endive.kv.log.epochs import open_shared
from endive.kv.log.helping import delete_intention
from endive.kv.procedures import Call
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction
from endive.protocol.requests import Put, PutIfAbsent, Request, Sleep, Steps, ask
from endive.rng import Stream
from endive.testing import virtual_time
from endive.testing.virtual_time import ClusterFaults, SimulatedCluster
from tests.servers.conftest import has_bucket, seaweedfs

SIGMA = 0.2
VIRTUAL_PROCESSES = (1, 2, 8, 16, 32, 64, 128, 256)
VIRTUAL_S = 20.0
VIRTUAL_WARM_UP_S = 2.0
"""Commits that begin in it do not count: processes meet for the first time, and the store is marked once."""
RACING_MAX = 32
"""Processes that race in virtual time: the simulation takes long, and their rate does not change any more."""
PROCESSES = (8, 16, 32)
SECONDS = 10.0
PARTS = ("virtual", "local", "s3", "seaweed")


# In virtual time.


@procedure("benchmark.add", 1)
def add(tx: Transaction, key: bytes) -> Steps[bytes]:
    """Increment a counter."""
    held = yield from tx.get(key)
    tx.put(key, b"%d" % (int(held or b"0") + 1))
    return b""


def latency_ms(request: Request[Any], rng: Stream) -> float:
    middle_ms = CREATE_MS if isinstance(request, PutIfAbsent | Put) else READ_MS
    return middle_ms * exp(NormalDist(0, SIGMA).inv_cdf(min(max(rng.random(), 1e-9), 1 - 1e-9)))


class VirtualProcess:
    """A process that calls a procedure again and again."""

    def __init__(self, cluster: SimulatedCluster, number: int, helps: bool) -> None:
        self.cluster, self.number, self.helps = cluster, number, helps
        self.machine = cluster.machine(str(number))
        self.latencies_ms: list[float] = []
        self.commits = 0
        """All of them, those of the warm-up too."""
        self.announced = 0
        cluster.start(self.machine, self.life())

    def life(self) -> Steps[None]:
        """Join, then commit one call after the other."""
        yield from ask(Sleep(7.0 * self.number))
        state = yield from open_shared()
        contention, last = Contention(), -1
        calls = (Call("benchmark.add", 1, b"%d" % self.number),)
        while True:
            start_ms = self.cluster.now_ms
            hints = contention.hints(start_ms, state.wal_end == last)
            if self.helps:
                done = yield from commit_calls(state, calls, NoCache(), hints, self.machine.name)
            else:
                done = yield from commit_batch(state, calls, NoCache())
            took_ms = self.cluster.now_ms - start_ms
            self.commits += 1
            if start_ms >= 1000 * VIRTUAL_WARM_UP_S:
                self.latencies_ms.append(took_ms)
            others = done.entry - 1 - last if done.entry and last >= 0 else 0
            state, last = done.state, done.entry or last
            contention.update(done, self.cluster.now_ms, took_ms, others)
            if done.own is not None:
                self.announced += 1
                self.cluster.start(self.machine, delete_intention(done.own))


def virtual(processes: int, helps: bool) -> Row:
    virtual_time.EVENTS_MAX = 10**9  # a measurement ends by itself
    requests = [0]

    def counted(request: Request[Any], rng: Stream) -> float:
        requests[0] += 1
        return latency_ms(request, rng)

    cluster = SimulatedCluster(1, ClusterFaults(), counted, parallel_gets=True)
    lives = [VirtualProcess(cluster, number, helps) for number in range(processes)]
    cluster.run(1000 * VIRTUAL_WARM_UP_S)
    requests[0] = 0
    cluster.run(1000 * (VIRTUAL_WARM_UP_S + VIRTUAL_S))
    latencies = sorted(one for life in lives for one in life.latencies_ms)
    held = [int(body or b"0") for body in (cluster_value(cluster, number) for number in range(processes))]
    lost = sum(life.commits > count for life, count in zip(lives, held, strict=True))
    return {
        "processes": processes,
        "way": "helping" if helps else "racing",
        "commits_per_s": round(len(latencies) / VIRTUAL_S, 1),
        "p50_ms": round(median(latencies)),
        "p99_ms": round(quantiles(latencies, n=100)[98]),
        "requests_per_commit": round(requests[0] / len(latencies), 1),
        "announced_share": round(sum(life.announced for life in lives) / sum(life.commits for life in lives), 2),
        "lost": lost,
    }


def cluster_value(cluster: SimulatedCluster, number: int) -> bytes | None:
    with Store(cluster.objects, "shared", OPTIONS) as store:
        return store.get(b"%d" % number)


def cases(part: str, processes: tuple[int, ...], seconds: float) -> Iterator[Row]:
    """Yield the figures of each case of a part."""
    works = [(work, tables) for work in (METADATA, APPEND) for tables in ("each", "one")]
    if part == "virtual":
        for count in VIRTUAL_PROCESSES:
            yield from (virtual(count, helps) for helps in (True, False) if helps or count <= RACING_MAX)
    elif part == "local":
        for work, tables in works:
            yield from (run(subject, work, tables, 8, seconds, kills=False) for subject in ("endive", "sql"))
    elif part == "s3":
        yield from slow_cases(part, processes, seconds)
    else:
        with tempfile.TemporaryDirectory() as place, seaweedfs(Path(place), has_bucket) as endpoint:
            yield from slow_cases(part, processes, seconds, endpoint)


def slow_cases(subject: str, processes: tuple[int, ...], seconds: float, endpoint: str = "") -> Iterator[Row]:
    """Yield the figures of processes on a slow store: undisturbed, then with some of them stopped and killed."""
    for count in processes:
        for kills in (False, True):
            for work in (METADATA, APPEND):
                for tables in ("each", "one"):
                    yield run(subject, work, tables, count, seconds, kills, endpoint)


def measure(part: str, processes: tuple[int, ...], seconds: float) -> None:
    """Measure a part; save after each case, so that a run that is interrupted leaves what it has."""
    parameters = {"seconds": seconds, "virtual_s": VIRTUAL_S, "create_ms": CREATE_MS, "read_ms": READ_MS}
    rows: list[Row] = []
    for row in cases(part, processes, seconds):
        rows.append(row)
        print(row, flush=True)
        save(f"helping_{part}", {"parameters": parameters, "rows": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--processes", type=int, nargs="*", default=PROCESSES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    for part in [given.only] if given.only else PARTS:
        measure(part, tuple(given.processes), given.seconds)


if __name__ == "__main__":
    main()
