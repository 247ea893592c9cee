"""The store over its age: requests and CPU time of opening and putting, one short-lived process after the other.

Requests are counted by the driver: all of them, and round trips, where requests that are made together count as one.
Times are CPU times, so that a busy machine disturbs them less.

    python -m benchmarks.aging_store                      # writes results/aging_store.json
    python -m benchmarks.aging_store --only processes     # one part; the others keep their results
"""

import argparse
import json
from collections.abc import Callable
from os import urandom
from pathlib import Path
from time import process_time

from benchmarks.report import RESULTS, save
from endive.kv import Reader, Store, StoreOptions
from endive.kv.log.wal import WAL, is_fence
from endive.kv.manifest import SortedRun, SstInfo, StoreManifest
from endive.kv.manifest_format import decode_manifest, encode_manifest
from endive.kv.store import WriterKind
from endive.objects import MemoryStore

AGES = (1, 100, 500, 1000, 2000)
NEVER = 3_600_000.0
"""Milliseconds between polls: a short-lived process ends before its background thread does anything."""


def processes(writer: WriterKind) -> list[dict[str, float]]:
    """Let stores be opened for one put each; return what it took at some ages."""
    objects = MemoryStore()
    rows: list[dict[str, float]] = []
    for age in range(1, max(AGES) + 1):
        started_s = process_time()
        store = Store(objects, writer, StoreOptions(poll_interval_ms=NEVER))
        opened, all_opened = store.driver.requests.sequential, store.driver.requests.total
        opened_s = process_time()
        store.put(b"%06d" % age, b"x" * 200)
        put = store.driver.requests.sequential - opened
        put_s = process_time()
        store.close()
        if age in AGES:
            rows.append(
                {
                    "age": age,
                    "opening_round_trips": opened,
                    "opening_requests": all_opened,
                    "opening_cpu_ms": (opened_s - started_s) * 1000,
                    "put_round_trips": put,
                    "put_cpu_ms": (put_s - opened_s) * 1000,
                    "wal_objects": sum(not is_fence(info) for info in objects.list(WAL.prefix)),
                    "runs": len(store.manifest.value.runs),
                }
            )
    return rows


def cold_reads() -> list[dict[str, float]]:
    """Read 2,001 rows of one prefix, and one key, with a cold cache."""
    objects = MemoryStore()
    with Store(objects, "shared", StoreOptions(poll_interval_ms=NEVER)) as store:
        for number in range(2001):
            store.put(b"table/%06d" % number, urandom(700))
            if number % 64 == 63:
                store.compact()
    rows: list[dict[str, float]] = []
    for kind in ("scan", "get"):
        with Reader(objects) as reader:
            opened = reader.driver.requests.sequential
            before = reader.driver.requests.total
            found = (
                len(list(reader.scan(prefix=b"table/"))) if kind == "scan" else len(reader.get(b"table/001000") or b"")
            )
            rows.append(
                {
                    "read": found,
                    "opening_round_trips": opened,
                    "round_trips": reader.driver.requests.sequential - opened,
                    "requests": reader.driver.requests.total - before,
                    "runs": len(reader.manifest.value.runs),
                }
            )
    return rows


def manifests() -> list[dict[str, float]]:
    """Write and read manifests of many SSTs."""
    rows: list[dict[str, float]] = []
    for count in (1000, 10_000, 100_000):
        ssts = tuple(SstInfo(n, 1 << 25, 10**5, b"key/%032d" % n, b"key/%032d~" % n, 1 << 24) for n in range(count))
        started_s = process_time()
        body = encode_manifest(StoreManifest("0" * 32, runs=(SortedRun(5, ssts),)))
        encoded_s = process_time()
        decode_manifest("", body)
        decoded_s = process_time()
        rows.append(
            {
                "ssts": count,
                "write_cpu_s": encoded_s - started_s,
                "read_cpu_s": decoded_s - encoded_s,
                "bytes": len(body),
            }
        )
    return rows


PARTS: dict[str, Callable[[], list[dict[str, float]]]] = {
    "processes, shared": lambda: processes("shared"),
    "processes, exclusive": lambda: processes("exclusive"),
    "cold reads": cold_reads,
    "manifests": manifests,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts whose name begins so")
    only = parser.parse_args().only
    path = Path(RESULTS, "aging_store.json")
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else {}
    for name, measure in PARTS.items():
        if name.startswith(only):
            parts[name] = measure()
            print(name, *parts[name], sep="\n  ")
            save("aging_store", {"parts": parts}, [name])


if __name__ == "__main__":
    main()
