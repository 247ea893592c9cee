"""Processes that commit through PyIceberg at the same time, some of them stopped and killed, and what came of it.

A process is this module with arguments (`python -m benchmarks.helping_processes …`). All of them wait for a file before
they begin, and write down every commit that was acknowledged.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.catalog_load import SCHEMA, Window, Writer, lost_rows, write
from benchmarks.catalog_s3 import PROFILE, SlowFileIO, SlowObjectFileIO
from endive.catalog import KVCatalog
from endive.catalog.connection import OPTIONS
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.kv import Store
from endive.objects import ObjectStore, open_objects
from endive.sim.config.profiles import parse_profiles
from endive.sim.delays import delay_of
from endive.testing import FaultInjectingStore, FaultProbabilities

GO = "go"
"""A file: when it exists, processes begin."""
ENDPOINT = "endpoint"
"""A file with the address of the S3 server, for `seaweed`."""
READY_MAX_S = 300.0
MODE = {"endive.metadata-json": "background"}
KEYS = {"s3.access-key-id": "any", "s3.secret-access-key": "any", "s3.region": "us-east-1"}
COUNTERS = ("batches", "announced_batches", "carried_by_others", "carried_for_others", "lost_races")
Row = dict[str, Any]


class SlowCatalog(EndiveCatalog):
    """A catalog that has its store for itself."""

    def close(self) -> None:
        """Close the catalog, then the store: its threads would go on."""
        super().close()
        self.kv.store.close()


def slowed(objects: ObjectStore, seed: int, warehouse: str, properties: dict[str, str], io: type) -> EndiveCatalog:
    """Open a catalog whose every request takes as long as one to S3, or longer if the store itself takes long."""
    delay = delay_of(parse_profiles("S3", PROFILE)["s3"])
    slow = FaultInjectingStore(objects, seed, FaultProbabilities(), delay)
    properties = {**MODE, **properties, "py-io-impl": f"{io.__module__}.{io.__name__}"}
    return SlowCatalog.on(KVCatalog(Store(slow, "shared", OPTIONS), warehouse, properties, create=True))


def slow_directory(directory: str, seed: int) -> EndiveCatalog:
    return slowed(open_objects(f"{directory}/_endive"), seed, Path(directory).as_uri(), {}, SlowFileIO)


def slow_bucket(directory: str, seed: int) -> EndiveCatalog:
    """Open a catalog in a bucket of SeaweedFS; each directory has a place of its own there."""
    endpoint, url = Path(directory, ENDPOINT).read_text(), f"s3://bucket/{Path(directory).name}"
    settings = {"access_key_id": "any", "secret_access_key": "any", "region": "us-east-1"}
    objects = open_objects(f"{url}/_endive", endpoint=endpoint, settings=settings)
    return slowed(objects, seed, url, {"s3.endpoint": endpoint, **KEYS}, SlowObjectFileIO)


def opened(subject: str, directory: str, seed: int) -> Catalog:
    if subject == "s3":
        return slow_directory(directory, seed)
    if subject == "seaweed":
        return slow_bucket(directory, seed)
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
    before_s, before = time.process_time(), counters_of(catalog)
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
    counters = {name: count - before[name] for name, count in counters_of(catalog).items()}
    done = {"latencies_ms": found.latencies_ms, "errors": dict(found.errors), "cpu_s": cpu_s, "counters": counters}
    Path(directory, f"done-{number}").write_text(json.dumps(done))
    catalog.close()


def counters_of(catalog: Catalog) -> dict[str, int]:
    """Return what a process has done so far; nothing is known of SqlCatalog."""
    if not isinstance(catalog, EndiveCatalog):
        return {}
    stats: dict[str, int] = catalog.kv.store.stats()  # type: ignore[attr-defined]
    requests = sum(count for name, count in stats.items() if name.startswith("requests_"))
    return {name: stats[name] for name in COUNTERS} | {"requests": requests}


def run(subject: str, work: str, tables: str, processes: int, seconds: float, kills: bool, endpoint: str = "") -> Row:
    """Run processes, some of them stopped and killed, and compare what is there with what was acknowledged."""
    with tempfile.TemporaryDirectory(prefix="endive-bench-") as directory:
        Path(directory, ENDPOINT).write_text(endpoint)
        names = [f"db.t{0 if tables == 'one' else number}" for number in range(processes)]
        with opened(subject, directory, 999) as catalog:
            catalog.create_namespace("db")
            for name in sorted(set(names)):
                catalog.create_table(name, SCHEMA)
        command = [sys.executable, "-m", "benchmarks.helping_processes"]
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
                child.wait()
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
        **counted(done, acknowledged),
        "errors": dict(sum((Counter(each["errors"]) for each in done), Counter())),
        "finished": len(done),
        "lost": lost,
    }


def counted(done: list[Row], acknowledged: int) -> Row:
    """Return the sums of the counters, and the requests to the store for each commit."""
    total = {name: sum(each["counters"][name] for each in done) for name in (done[0]["counters"] if done else ())}
    requests = total.pop("requests", None)
    return total if requests is None else {**total, "requests_per_commit": round(requests / max(acknowledged, 1), 1)}


if __name__ == "__main__":
    given = sys.argv[1:]
    one_process(given[0], given[1], given[2], given[3], int(given[4]), float(given[5]))
