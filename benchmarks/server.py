"""The REST server over an object store that answers like S3: commits per second of 64 and 256 clients, and loads.

    python -m benchmarks.server                  # writes results/server.json
    python -m benchmarks.server --only loads     # only that part, or several of `PARTS`; the others stay as they are
    python -m benchmarks.server --quick          # a look at every case; writes nothing

Each part is saved when it ends; one that fails does not discard the others.

The server and its catalog run in this process; the clients are connections of one other process, which commits as
fast as it is answered: a property of a table each. Both share the machine. After each case every acknowledged number
is looked for. `loads` times a table with 2,000 snapshots: whole, with `snapshots=refs`, and with `If-None-Match`.

`answers` is the CPU time of parts of a commit: of decoding a request and encoding an answer (`benchmarks.server_cpu`).
`reference` is Iceberg's own server with SQLite in a file and with PostgreSQL, and files in a directory: without the
latency of S3, which this server has (`benchmarks.reference_server`). `failures`
kills, stops and cuts off one of two servers on SeaweedFS a hundred times under load, with shared and with exclusive
writers: lost and repeated commits, and how long the slowest client waited for its next acknowledgement.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from benchmarks.catalog_load import SCHEMA
from benchmarks.catalog_s3 import slow_catalog
from benchmarks.reference_server import DATABASES, create_tables, reference_server
from benchmarks.report import RESULTS, commit, save
from benchmarks.server_cpu import measure_answers, snapshot
from endive.catalog.commit.change import TableChange
from endive.catalog.model.file_rows import NO_FILES
from endive.catalog.settings import EXCLUSIVE, SHARED
from endive.server import Limits, serve_in_background
from tests.servers.conftest import ANY_KEYS, has_bucket, seaweedfs

CLIENTS = (64, 256)
SECONDS = 8.0
WARM_S = 3.0
"""Load before that is counted: Java compiles what it runs, and connections are made."""
SNAPSHOTS = 2000
LOADS = 50
PARTS = ("commits", "loads", "answers", "reference", "failures")
FAILURES = 100
A_ROUND = 20
"""Failures on one table: a history grows with the square of its length."""
KINDS = ("kill", "stop", "cut")


JSON_BODY = "content-type: application/json\r\n"


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, headers: str, body: bytes = b""
) -> tuple[int, bytes, str]:
    """Send a request and return the status, the body and the ETag of its answer."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    if fields.get("transfer-encoding") == "chunked":
        answered = b""
        while size := int((await reader.readuntil(b"\r\n")), 16):
            answered += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    else:
        answered = await reader.readexactly(int(fields.get("content-length", "0")))
    return int(lines[0].split()[1]), answered, fields.get("etag", "")


async def commit_until(url: str, token: str, place: int, until_s: float) -> tuple[int, list[float]]:
    """Commit numbers to a table until a time; return the last acknowledged one, and the time of each commit."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**24)
    number, times_s = 0, []
    while time.time() < until_s:  # noqa: TID251 - a time that two processes share
        update = {"action": "set-properties", "updates": {"number": str(number + 1)}}
        body = json.dumps({"requirements": [], "updates": [update]}).encode()
        began_s = time.perf_counter()
        path, headers = f"/v1/namespaces/db/tables/t{place}", f"authorization: bearer {token}\r\n{JSON_BODY}"
        status, answered, _ = await exchange(reader, writer, "POST", path, headers, body)
        if status != 200:
            raise RuntimeError(answered.decode())
        times_s.append(time.perf_counter() - began_s)
        number += 1
    writer.close()
    return number, times_s


async def clients(url: str, token: str, count: int, seconds: float) -> None:
    """Run clients, and print their acknowledged numbers and times as JSON."""
    began_s, until_s = time.perf_counter(), time.time() + seconds  # noqa: TID251
    found = await asyncio.gather(*(commit_until(url, token, place, until_s) for place in range(count)))
    times_ms = sorted(1000 * one for _, times in found for one in times)
    took_s = time.perf_counter() - began_s  # until the last one was answered
    print(json.dumps({"numbers": [number for number, _ in found], "times_ms": times_ms, "seconds": took_s}))


def run_clients(url: str, token: str, count: int, seconds: float) -> dict[str, Any]:
    """Run clients in a process of their own; return what they print."""
    command = [sys.executable, "-m", "benchmarks.server", "--client", url, token, str(count), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rates(found: Mapping[str, Any]) -> dict[str, float]:
    """Return commits a second, and their times."""
    times_ms = found["times_ms"]
    return {
        "commits_per_s": round(len(times_ms) / found["seconds"], 1),
        "p50_ms": round(median(times_ms), 1),
        "p99_ms": round(quantiles(times_ms, n=100)[-1], 1),
    }


def measure_commits(seconds: float) -> list[dict[str, object]]:
    """Return a row for each kind of writer and number of clients."""
    rows = []
    for count in CLIENTS:
        for writer in (EXCLUSIVE, SHARED):
            with slow_catalog("background", writer) as catalog:
                for place in range(count):
                    catalog.kv.create_table(f"db.t{place}", SCHEMA)
                with serve_in_background(catalog.kv, Limits(threads=count + 8)) as server:
                    run_clients(server.url, server.token, count, WARM_S)
                    cpu_s = time.process_time()
                    found = run_clients(server.url, server.token, count, seconds)
                    cpu_s = time.process_time() - cpu_s
                held = [
                    int(catalog.kv.load_table(f"db.t{place}").metadata.properties.get("number", "0"))
                    for place in range(count)
                ]
            row = {
                "clients": count,
                "writer": writer,
                **rates(found),
                "server_cpu_ms_per_commit": round(1000 * cpu_s / len(found["times_ms"]), 2),
                "lost": sum(number > there for number, there in zip(found["numbers"], held, strict=True)),
            }
            print(row, flush=True)
            rows.append(row)
    return rows


async def time_loads(url: str, token: str, count: int) -> dict[str, object]:
    """Return the milliseconds and bytes of loads, by kind."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**26)
    headers, path = f"authorization: bearer {token}\r\n", "/v1/namespaces/db/tables/t"
    _, _, tag = await exchange(reader, writer, "GET", path, headers)
    kinds = {
        "all": (path, headers),
        "refs": (f"{path}?snapshots=refs", headers),
        "etag": (path, f"{headers}if-none-match: {tag}\r\n"),
    }
    found: dict[str, object] = {}
    for kind, (asked, sent) in kinds.items():
        times_ms, size = [], 0
        for _ in range(count):
            began_s = time.perf_counter()
            status, body, _ = await exchange(reader, writer, "GET", asked, sent)
            times_ms.append(1000 * (time.perf_counter() - began_s))
            size = len(body)
        found[kind] = {"status": status, "bytes": size, "median_ms": round(median(times_ms), 2)}
    writer.close()
    return found


def measure_loads(snapshots: int, loads: int) -> dict[str, object]:
    """Return the cost of loading a table with many snapshots, beside the store's read of 30 ms."""
    with slow_catalog("background", EXCLUSIVE) as catalog:
        kv = catalog.kv
        kv.create_table("db.t", SCHEMA)
        for first in range(1, snapshots + 1, 100):
            numbers = range(first, min(first + 100, snapshots + 1))
            added = [snapshot(number) for number in numbers]
            main = SetSnapshotRefUpdate.model_validate(
                {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": numbers[-1]}
            )
            updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=one) for one in added]
            updates.append(main)
            kv.commit_many([TableChange(("db", "t"), (), tuple(updates), dict.fromkeys(numbers, NO_FILES))])
        with serve_in_background(kv) as server:
            found = asyncio.run(time_loads(server.url, server.token, loads))
    print(found, flush=True)
    return {"snapshots": snapshots, **found}


def measure_reference(seconds: float) -> list[dict[str, object]]:
    """Return a row for each database and number of clients of Iceberg's reference server."""
    rows = []
    for database in DATABASES:
        for count in CLIENTS:
            with reference_server(database) as url:
                create_tables(url, count)
                run_clients(url, "none", count, WARM_S)
                found = run_clients(url, "none", count, seconds)
            rows.append({"database": database, "clients": count, **rates(found)})
            print(rows[-1], flush=True)
    return rows


def measure_failures(count: int, rounds: int) -> list[dict[str, object]]:
    """Return for each kind of writer what was lost or repeated, and how long clients waited."""
    rows = []
    for writer in (SHARED, EXCLUSIVE):
        with tempfile.TemporaryDirectory() as files, seaweedfs(Path(files), has_bucket) as endpoint:
            plan = {"failures": count, "kinds": KINDS, "writer": writer, "clients": 6, "endpoint": endpoint}
            command = [sys.executable, "-m", "tests.server.failing_over", files, json.dumps(plan)]
            environment = {**os.environ, **ANY_KEYS}
            found = []
            for _ in range(rounds):
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                found.append(json.loads(done.stdout.splitlines()[-1]))
        outages_s = [one for each in found for one in each["outages_s"]]
        counts = {name: sum(each[name] for each in found) for name in ("acknowledged", "loads", "commits_too_many")}
        wrong = {name: sum(len(each[name]) for each in found) for name in ("missing", "violations", "findings")}
        median_s = round(median(outages_s), 3)
        rows.append({"writer": writer, **counts, **wrong, "median_outage_s": median_s, "outages_s": outages_s})
        print(rows[-1], flush=True)
    return rows


Measure = Callable[[bool], object]
"""Measures a part; whether it is only a look."""

MEASURES: dict[str, Measure] = {
    "commits": lambda quick: measure_commits(2.0 if quick else SECONDS),
    "loads": lambda quick: measure_loads(200 if quick else SNAPSHOTS, 5 if quick else LOADS),
    "answers": lambda quick: measure_answers(20 if quick else 300),
    "reference": lambda quick: measure_reference(2.0 if quick else SECONDS),
    "failures": lambda quick: measure_failures(*((3, 1) if quick else (A_ROUND, FAILURES // A_ROUND))),
}


def run(measures: Mapping[str, Measure], quick: bool) -> list[str]:
    """Measure parts, and save each when it ends; return those that failed. Other parts stay in the file as they are."""
    failed, measured_at = [], commit()  # before the first result makes the tree dirty
    for part, measure in measures.items():
        try:
            found = measure(quick)
        except Exception:  # noqa: BLE001 - the other parts are measured all the same
            traceback.print_exc()
            failed.append(part)
            continue
        if not quick:
            path = RESULTS / "server.json"
            kept = json.loads(path.read_text()) if path.exists() else {}
            body = {**{each: kept.get(each) for each in PARTS}, part: found}
            commits = {**kept.get("measured_at", {}), part: measured_at}
            print(save("server", {"unit": "commits/s, ms", "measured_at": commits, **body}))
    return failed


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        url, token, count, seconds = sys.argv[2:6]
        asyncio.run(clients(url, token, int(count), float(seconds)))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    failed = run({part: MEASURES[part] for part in given.only or PARTS}, given.quick)
    if failed:
        raise SystemExit(f"failed, and not saved: {', '.join(failed)}")


if __name__ == "__main__":
    main()
