"""Processes that commit at the same time and help each other.

    python -m benchmarks.helping                      # everything
    python -m benchmarks.helping --only virtual       # one part: virtual, local, s3
    python -m benchmarks.helping --only s3 --processes 8 --seconds 10

`virtual` runs the store's protocols in virtual time, with latencies around 61 ms for a write and 30 ms for anything
else, one call at a time from each process: helping, and racing for entries as transaction functions did before. `local`
runs processes on a local directory, beside PyIceberg's SqlCatalog on SQLite, in turns. `s3` runs processes on a local
directory where every request takes as long as on S3. Some of the processes of `s3` are stopped for a while, and some
killed; every acknowledged commit must be there, once.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import exp
from pathlib import Path
from statistics import NormalDist, median, quantiles
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.catalog_load import APPEND, METADATA, SCHEMA, Window, Writer, lost_rows, write
from benchmarks.catalog_s3 import CREATE_MS, PROFILE, READ_MS, SlowFileIO
from benchmarks.report import save
from endive.catalog import KVCatalog
from endive.catalog.connection import OPTIONS
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.kv import Store, procedure
from endive.kv.log.combining import Contention, commit_calls
from endive.kv.log.committing import commit_batch
from endive.kv.log.epochs import open_shared
from endive.kv.log.helping import delete_intention
from endive.kv.procedures import Call
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction
from endive.objects import open_objects
from endive.protocol.requests import Put, PutIfAbsent, Request, Sleep, Steps, ask
from endive.rng import Stream
from endive.sim.config.profiles import parse_profiles
from endive.sim.delays import delay_of
from endive.testing import FaultInjectingStore, FaultProbabilities, virtual_time
from endive.testing.virtual_time import ClusterFaults, SimulatedCluster

SIGMA = 0.2
VIRTUAL_PROCESSES = (1, 2, 8, 16, 32, 64, 128, 256)
VIRTUAL_S = 20.0
RACING_MAX = 32
"""Processes that race in virtual time: the simulation takes long, and their rate does not change any more."""
PROCESSES = (8, 16, 32)
SECONDS = 10.0
GO = "go"
"""A file: when it exists, processes begin."""
READY_MAX_S = 300.0
PARTS = ("virtual", "local", "s3")
MODE = {"endive.metadata-json": "background"}
Row = dict[str, Any]


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
            self.latencies_ms.append(took_ms)
            others = done.entry - 1 - last if done.entry and last >= 0 else 0
            state, last = done.state, done.entry or last
            contention.learn(done, self.cluster.now_ms, took_ms, others)
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
    cluster.run(1000 * VIRTUAL_S)
    latencies = sorted(one for life in lives for one in life.latencies_ms)
    held = [int(body or b"0") for body in (cluster_value(cluster, number) for number in range(processes))]
    lost = sum(len(life.latencies_ms) > count for life, count in zip(lives, held, strict=True))
    return {
        "processes": processes,
        "way": "helping" if helps else "racing",
        "commits_per_s": round(len(latencies) / VIRTUAL_S, 1),
        "p50_ms": round(median(latencies)),
        "p99_ms": round(quantiles(latencies, n=100)[98]),
        "requests_per_commit": round(requests[0] / len(latencies), 1),
        "announced_share": round(sum(life.announced for life in lives) / len(latencies), 2),
        "lost": lost,
    }


def cluster_value(cluster: SimulatedCluster, number: int) -> bytes | None:
    with Store(cluster.objects, "shared", OPTIONS) as store:
        return store.get(b"%d" % number)


# Processes.


def slow_catalog(directory: str, seed: int) -> EndiveCatalog:
    """Open a catalog in a directory; every request takes as long as one to S3."""
    delay = delay_of(parse_profiles("S3", PROFILE)["s3"])
    objects = FaultInjectingStore(open_objects(f"{directory}/_endive"), seed, FaultProbabilities(), delay)
    properties = {**MODE, "py-io-impl": f"{SlowFileIO.__module__}.{SlowFileIO.__name__}"}
    kv = KVCatalog(Store(objects, "shared", OPTIONS), Path(directory).as_uri(), properties, create=True)
    return EndiveCatalog.on(kv)


def opened(subject: str, directory: str, seed: int) -> Catalog:
    if subject == "s3":
        return slow_catalog(directory, seed)
    if subject == "endive":
        return EndiveCatalog("endive", uri=directory, **MODE)
    return SqlCatalog("sql", uri=f"sqlite:///{directory}/catalog.db", warehouse=Path(directory).as_uri())


def one_process(subject: str, directory: str, work: str, name: str, number: int, seconds: float) -> None:
    """Commit for a while; write what was acknowledged, line by line, and at the end the latencies."""
    catalog = opened(subject, directory, number)
    catalog.load_table(name)
    Path(directory, f"ready-{number}").touch()
    while not Path(directory, GO).exists():
        time.sleep(0.02)
    before_s = time.process_time()
    window = Window.of(seconds)
    log = Path(directory) / f"log-{number}"

    class Noting(Writer):
        def answered(self, number: int, start_s: float, window: Window) -> None:
            super().answered(number, start_s, window)
            with log.open("a") as lines:
                lines.write(f"{number}\n")

    found = Noting()
    write(lambda: catalog.load_table(name), work, number, found, window)
    cpu_s = time.process_time() - before_s
    Path(directory, f"done-{number}").write_text(
        json.dumps({"latencies_ms": found.latencies_ms, "errors": dict(found.errors), "cpu_s": cpu_s})
    )
    catalog.close()


def run(subject: str, work: str, tables: str, processes: int, seconds: float, kills: bool) -> Row:
    """Run processes, some of them stopped and killed, and compare what is there with what was acknowledged."""
    with tempfile.TemporaryDirectory(prefix="endive-bench-") as directory:
        names = [f"db.t{0 if tables == 'one' else number}" for number in range(processes)]
        with opened(subject, directory, 999) as catalog:
            catalog.create_namespace("db")
            for name in sorted(set(names)):
                catalog.create_table(name, SCHEMA)
        command = [sys.executable, "-m", "benchmarks.helping", "--child"]
        children = [
            subprocess.Popen([*command, subject, directory, work, names[n], str(n), str(seconds)])
            for n in range(processes)
        ]
        try:
            start_together(Path(directory), children)
            if kills:
                disturb(children, seconds)
            for child in children:
                child.wait()
        finally:
            for child in children:
                child.kill()
        return {
            "subject": subject,
            "work": work,
            "tables": tables,
            "processes": processes,
            "with_kills": kills,
            **figures(Path(directory), subject, work, names, seconds),
        }


def start_together(directory: Path, children: list["subprocess.Popen[bytes]"]) -> None:
    """Wait until all processes have opened the catalog, then let them begin."""
    end_s = time.monotonic() + READY_MAX_S
    while len(list(directory.glob("ready-*"))) < len(children):
        if time.monotonic() > end_s or any(child.poll() is not None for child in children):
            raise RuntimeError("a process has ended, or has not opened the catalog in time")
        time.sleep(0.05)
    (directory / GO).touch()


def disturb(children: list["subprocess.Popen[bytes]"], seconds: float) -> None:
    """Stop a process for a second, and kill another, every two seconds."""
    for number in range(int(seconds / 2)):
        stopped, killed = children[number % len(children)], children[-1 - number % len(children)]
        if stopped.poll() is None and killed.poll() is None and stopped is not killed:
            os.kill(stopped.pid, signal.SIGSTOP)
            time.sleep(1)
            os.kill(stopped.pid, signal.SIGCONT)
            if number < len(children) // 4:
                killed.kill()
        time.sleep(1)


def figures(directory: Path, subject: str, work: str, names: list[str], seconds: float) -> Row:
    done = [json.loads(path.read_text()) for path in directory.glob("done-*")]
    writers = [Writer() for _ in names]
    for number, writer in enumerate(writers):
        log = directory / f"log-{number}"
        writer.acknowledged = [int(line) for line in log.read_text().splitlines()] if log.exists() else []
    with opened(subject, str(directory), 998) as catalog:
        lost = sum(lost_rows(catalog, work, name, names, writers) for name in sorted(set(names)))
    latencies = sorted(one for each in done for one in each["latencies_ms"])
    acknowledged = sum(len(writer.acknowledged) for writer in writers)
    return {
        "commits_per_s": round(acknowledged / seconds, 1),
        "acknowledged": acknowledged,
        "p50_ms": round(median(latencies), 1) if latencies else None,
        "p99_ms": round(quantiles(latencies, n=100)[98], 1) if len(latencies) > 1 else None,
        "cpu_ms_per_commit": round(1000 * sum(each["cpu_s"] for each in done) / max(acknowledged, 1), 2),
        "errors": {name: count for each in done for name, count in each["errors"].items()},
        "finished": len(done),
        "lost": lost,
    }


def cases(part: str, processes: tuple[int, ...], seconds: float) -> Iterator[Row]:
    """Yield the figures of each case of a part."""
    works = [(work, tables) for work in (METADATA, APPEND) for tables in ("each", "one")]
    if part == "virtual":
        for count in VIRTUAL_PROCESSES:
            yield from (virtual(count, helps) for helps in (True, False) if helps or count <= RACING_MAX)
    elif part == "local":
        for work, tables in works:
            yield from (run(subject, work, tables, 8, seconds, kills=False) for subject in ("endive", "sql"))
    else:
        for count in processes:
            yield from (run("s3", work, tables, count, seconds, kills=False) for work, tables in works)
            yield run("s3", METADATA, "each", count, seconds, kills=True)


def measure(part: str, processes: tuple[int, ...], seconds: float) -> None:
    """Measure a part; save after each case, so that a run that is interrupted leaves what it has."""
    parameters = {"seconds": seconds, "virtual_s": VIRTUAL_S, "create_ms": CREATE_MS, "read_ms": READ_MS}
    rows: list[Row] = []
    for row in cases(part, processes, seconds):
        rows.append(row)
        print(row, flush=True)
        save(f"helping_{part}", {"parameters": parameters, "rows": rows})


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        subject, directory, work, name, number, seconds = sys.argv[2:]
        one_process(subject, directory, work, name, int(number), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--processes", type=int, nargs="*", default=PROCESSES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    for part in [given.only] if given.only else PARTS:
        measure(part, tuple(given.processes), given.seconds)


if __name__ == "__main__":
    main()
