"""The store beside `slatedb`, both from Python, in one process, on a local directory, with the same rows.

slatedb's local store does not sync to disk, so neither does ours here (`fsync=False`); with `fsync=True` it is listed
on its own, and so is the same store with the latencies of S3, from the measured profile. Repeats are interleaved:
compare only figures of one file.

    python -m benchmarks.store                      # writes results/store.json
    python -m benchmarks.store --growth 10000000    # grows a store to so many rows; writes results/store_growth.json

Where a figure depends on nothing but the processor it is given by CPU time, too: seconds that the process was given, on
all its threads. On a machine that others use, that says what a free one would give.

What is compared is "from Python": slatedb's binding costs 60 to 130 microseconds a call, which says nothing of
SlateDB in Rust.
"""

import argparse
import asyncio
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import slatedb.uniffi as slate

from benchmarks.report import save, spread
from endive.kv import Store, StoreOptions
from endive.objects import LocalStore, ObjectStore
from endive.sim.config.profiles import load_profile_set
from endive.sim.delays import delay_of
from endive.testing import FaultInjectingStore, FaultProbabilities

ROWS = 20_000
DURABLE = 200
TASKS = 32
REPEATS = 3
VALUE = bytes(range(200))
KEYS = [b"key%012d" % number for number in range(ROWS)]

Figures = dict[str, float]


@contextmanager
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="endive-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def rate(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def rates(what: str, count: int, work: Callable[[], object]) -> Figures:
    start_cpu = time.process_time()
    figures = {f"{what}, /s": rate(count, work)}
    return figures | {f"{what}, /s of CPU": count / (time.process_time() - start_cpu)}


def latencies_ms(count: int, work: Callable[[int], object]) -> list[float]:
    found = []
    for number in range(count):
        start = time.perf_counter()
        work(number)
        found.append((time.perf_counter() - start) * 1000)
    return found


# Endive.


def with_latencies_of(provider: str, path: Path) -> ObjectStore:
    delay = delay_of(load_profile_set("measured")[provider])
    return FaultInjectingStore(LocalStore(path, fsync=False), 1, FaultProbabilities(), delay)


def endive(objects: ObjectStore, durable_puts: int = DURABLE) -> Figures:
    figures: Figures = {}
    options = StoreOptions(compact_here=False)
    with Store(objects, options=options) as store:
        figures |= rates("buffered puts", ROWS, lambda: [store.put(key, VALUE, False) for key in KEYS])
        store.flush()
        batches = [[(key, VALUE) for key in KEYS[start : start + 1000]] for start in range(0, ROWS, 1000)]
        figures["rows in batches of 1000, /s"] = rate(ROWS, lambda: [store.write(batch, False) for batch in batches])
        store.flush()
        before = dict(store.driver.requests.by_kind)
        figures["durable put p50, ms"] = median(latencies_ms(durable_puts, lambda n: store.put(b"d%d" % n, VALUE)))
        sent = sum(store.driver.requests.by_kind.values()) - sum(before.values())
        figures["requests per durable put"] = sent / durable_puts
        raw = latencies_ms(durable_puts, lambda n: objects.put_if_absent(f"raw/{n}", VALUE))
        figures["one object store write p50, ms"] = median(raw)
        figures[f"durable puts, {TASKS} threads, /s"] = rate(TASKS * 50, lambda: _threads(store))
        store.compact()
        figures["gets, cold cache, /s"] = rate(ROWS, lambda: [store.get(key) for key in KEYS])
        figures |= rates("gets, warm cache", ROWS, lambda: [store.get(key) for key in KEYS])
        figures |= rates("scanned rows", ROWS, lambda: sum(1 for _ in store.scan(prefix=b"key")))
    figures["open, ms"] = latencies_ms(1, lambda _: Store(objects, options=options).close())[0]
    return figures


def _threads(store: Store) -> None:
    def work(name: int) -> None:
        for number in range(50):
            store.put(b"t%d-%d" % (name, number), VALUE)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(TASKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# slatedb.


async def slatedb(path: Path) -> Figures:
    figures: Figures = {}
    path.mkdir()
    db = await _open(path)
    figures |= await _rates("buffered puts", lambda: _each(KEYS, lambda key: db.put(key, VALUE)))
    await db.flush()
    batches = [KEYS[start : start + 1000] for start in range(0, ROWS, 1000)]
    figures["rows in batches of 1000, /s"] = await _rate(
        ROWS, lambda: _each(batches, lambda keys: db.write(_batch(keys)))
    )
    await db.flush()
    found = []
    for number in range(DURABLE):
        start = time.perf_counter()
        await db.put(b"d%d" % number, VALUE)
        await db.flush()
        found.append((time.perf_counter() - start) * 1000)
    figures["durable put p50, ms"] = median(found)
    figures[f"durable puts, {TASKS} threads, /s"] = await _rate(TASKS * 50, lambda: _tasks(db))
    await db.flush_with_options(slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE))
    figures["gets, cold cache, /s"] = await _rate(ROWS, lambda: _each(KEYS, db.get))
    figures |= await _rates("gets, warm cache", lambda: _each(KEYS, db.get))
    figures |= await _rates("scanned rows", lambda: _scan(db))
    await db.shutdown()
    start = time.perf_counter()
    again = await _open(path)
    figures["open, ms"] = (time.perf_counter() - start) * 1000
    await again.shutdown()
    return figures


async def _open(path: Path) -> slate.Db:
    return await slate.DbBuilder(str(path).strip("/"), slate.ObjectStore.resolve("file:///")).build()


async def _rate(count: int, work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return count / (time.perf_counter() - start)


async def _rates(what: str, work: Callable[[], Awaitable[object]]) -> Figures:
    start_cpu = time.process_time()
    figures = {f"{what}, /s": await _rate(ROWS, work)}
    return figures | {f"{what}, /s of CPU": ROWS / (time.process_time() - start_cpu)}


async def _each(items: list[bytes] | list[list[bytes]], call: Callable[..., Awaitable[object]]) -> None:
    for item in items:
        await call(item)


def _batch(keys: list[bytes]) -> slate.WriteBatch:
    batch = slate.WriteBatch()
    for key in keys:
        batch.put(key, VALUE)
    return batch


async def _tasks(db: slate.Db) -> None:
    async def work(name: int) -> None:
        for number in range(50):
            handle = await db.put(b"t%d-%d" % (name, number), VALUE)
            await asyncio.gather(handle.await_durable(), db.flush())

    await asyncio.gather(*(work(name) for name in range(TASKS)))


async def _scan(db: slate.Db) -> int:
    everything = slate.KeyRange(start=b"key", start_inclusive=True, end=b"kez", end_inclusive=False)
    rows = await db.scan(everything)
    count = 0
    while batch := await rows.next_batch(1000):
        count += len(batch)
    return count


# Growth.


def grow(rows: int) -> None:
    """Put `rows` rows in the background of which compaction runs, and say what that takes."""
    points = []
    with (
        directory() as path,
        Store(LocalStore(path, fsync=False), options=StoreOptions(collect_interval_ms=5000, retention_ms=0)) as store,
    ):
        start = time.perf_counter()
        for number in range(1, rows + 1):
            store.put(b"key%012d" % (number * 7919 % rows), VALUE, False)
            if number % (rows // 10) == 0:
                memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                points.append(
                    {
                        "rows": number,
                        "seconds": round(time.perf_counter() - start, 1),
                        "peak_memory_mb": round(memory_mb),
                    }
                )
                print(points[-1], flush=True)
        store.compact()
        scanned = sum(1 for _ in store.scan())
        seconds = time.perf_counter() - start
        body = {"parameters": {"rows": rows, "value_bytes": len(VALUE)}, "points": points, "scanned": scanned}
        print(save("store_growth", {**body, "seconds": round(seconds, 1), "stats": store.stats()}))


def table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the medians as the table of docs/store.md."""
    lines = [f"| | {' | '.join(results)} |", "|---" * (len(results) + 1) + "|"]
    for name in results["endive"]:
        form = "{:,.0f}" if "/s" in name else "{:,.2f}"
        cells = (form.format(found[name]["median"]) if name in found else "" for found in results.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--growth", type=int)
    arguments = parser.parse_args()
    if arguments.growth:
        grow(arguments.growth)
        return
    samples: dict[str, dict[str, list[float]]] = {}
    for _ in range(REPEATS):
        with directory() as path:
            runs = {
                "endive": endive(LocalStore(path / "endive", fsync=False)),
                "endive, synced to disk": endive(LocalStore(path / "synced")),
                "endive, latencies of S3": endive(with_latencies_of("s3", path / "s3"), DURABLE // 5),
                "slatedb": asyncio.run(slatedb(path / "slatedb")),
            }
        for who, figures in runs.items():
            for name, figure in figures.items():
                samples.setdefault(who, {}).setdefault(name, []).append(figure)
    results = {who: {name: spread(found) for name, found in figures.items()} for who, figures in samples.items()}
    print(table(results))
    parameters = {"rows": ROWS, "value_bytes": len(VALUE), "durable_puts": DURABLE, "tasks": TASKS, "repeats": REPEATS}
    print(save("store", {"parameters": parameters, "results": results}))


if __name__ == "__main__":
    main()
