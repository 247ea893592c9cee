"""Ten million rows through the data source `endive`, beside plain Parquet in the same session, turn by turn.

    python -m benchmarks.tables              # writes results/tables.json, in five minutes at most on an idle machine
    python -m benchmarks.tables --quick      # a million rows, two rounds; writes nothing

Each round writes the same frame as plain Parquet and through the data source, then reads every column of both, and of
the table's files natively, into Spark's sink that drops its rows. What is alike on both sides: the rows, the columns'
types and whether they may be null, the codec, the number of files, the session. Spark writes times in its old 12-byte
form unless told otherwise, which is slow to read; here it is told. Rounds alternate the order, so that what warms up
and whatever else the machine does falls on all of them; ratios are between medians. Every round is checked by sums.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.report import save, spread
from endive.spark import read_native
from endive.spark.session import spark_session
from endive.spark.source.types import arrow_schema

ROWS, ROUNDS = 10_000_000, 7
QUICK_ROWS, QUICK_ROUNDS = 1_000_000, 2
BUDGET_S = 240.0
"""No round is begun later than this, once there are three."""

READS = 2
"""Of each kind in a round: they take less than writes."""

CORES = 2
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
COLUMNS = (
    "id", "id % 1000 as config", "cast(id % 7 as int) as seed", "rand(1) * 1000 as latency_ms", "rand(2) as share",
    "timestamp_millis(1700000000000 + id) as moment", "concat('status-', id % 5) as status", "id % 3 = 0 as committed",
)  # fmt: skip
"""Eight columns as of simulated transactions: numbers, a time, a few words, a flag."""

AIMS = {"write": 2.5, "read": 2.5, "native_read": 1.2}
BESIDE = {"write": "write_parquet", "read": "read_parquet", "native_read": "read_parquet"}

Works = dict[str, Callable[[], object]]
Samples = dict[str, list[float]]


def frame_of(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2 * CORES).selectExpr(*COLUMNS)


def source_of(spark: SparkSession, url: str, name: str) -> DataFrame:
    return spark.read.format("endive").option("catalog", url).load(name)


def read_everything(frame: DataFrame) -> None:
    """Read all columns of all rows, and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


def check(frame: DataFrame, rows: int) -> None:
    found = frame.agg(f.count("*"), f.sum("id"), f.sum(f.length("status")), f.max("moment")).first()
    if found is None or found[0] != rows or found[1] != rows * (rows - 1) // 2:
        raise SystemExit(f"not what was written: {found}")


def in_turn(works: Works, samples: Samples, backwards: bool) -> None:
    """Do each work and add what it took, in seconds."""
    for name in reversed(works) if backwards else works:
        start = time.perf_counter()
        works[name]()
        samples.setdefault(name, []).append(time.perf_counter() - start)


def one_round(spark: SparkSession, frame: DataFrame, url: str, name: str, plain: str, backwards: bool) -> Samples:
    """Write and read in every way; return what each took."""
    writes: Works = {
        "write_parquet": lambda: frame.write.parquet(plain),
        "write": lambda: frame.write.format("endive").option("catalog", url).mode("append").save(name),
    }
    reads: Works = {
        "read_parquet": lambda: read_everything(spark.read.parquet(plain)),
        "read": lambda: read_everything(source_of(spark, url, name)),
        "native_read": lambda: read_everything(read_native(spark, url, name)),
    }
    samples: Samples = {}
    in_turn(writes, samples, backwards)
    for number in range(READS):
        in_turn(reads, samples, backwards != bool(number % 2))
    return samples


def rounds(spark: SparkSession, place: Path, rows: int, count: int) -> list[Samples]:
    """Return the samples of each round but the first, which starts the JVM's compiler and Python's workers."""
    url, frame, start = (place / "lake").as_uri(), frame_of(spark, rows), time.perf_counter()
    options = {"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog", "uri": url}
    done: list[Samples] = []
    with load_catalog("endive", **options) as catalog:
        catalog.create_namespace("db")
        for number in range(count + 1):
            name, plain = f"db.t{number}", place / f"plain{number}"
            catalog.create_table(name, arrow_schema(frame.schema))
            done.append(one_round(spark, frame, url, name, str(plain), backwards=bool(number % 2)))
            print({key: [round(one, 1) for one in values] for key, values in done[-1].items()}, flush=True)
            check(source_of(spark, url, name), rows)
            check(read_native(spark, url, name), rows)
            shutil.rmtree(plain)
            catalog.purge_table(name)
            if number >= 3 and time.perf_counter() - start > BUDGET_S:
                break
    return done[1:]


def result(done: list[Samples], rows: int, load_before: float) -> dict[str, object]:
    figures = {name: spread([one for each in done for one in each[name]]) for name in done[0]}
    medians = {name: float(figure["median"]) for name, figure in figures.items() if isinstance(figure["median"], float)}
    return {
        "unit": "s",
        "rows": rows,
        "columns": len(COLUMNS),
        "rounds": len(done),
        "cores": CORES,
        "settings": SETTINGS,
        "load_average_before": round(load_before, 1),
        "load_average_after": round(os.getloadavg()[0], 1),
        "seconds": figures,
        "ratio_to_parquet": {name: round(medians[name] / medians[other], 2) for name, other in BESIDE.items()},
        "aim_at_most": AIMS,
        "note": "Plain Parquet by Spark's own reader and writer: same rows, types, codec and number of files, same "
        "session, turn by turn; a first round is left out. All columns are read. Two cores are busy with this alone: "
        "where the load average is far above two, other work ran too.",
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rows, count = (QUICK_ROWS, QUICK_ROUNDS) if quick else (ROWS, ROUNDS)
    load_before = os.getloadavg()[0]
    directory = tempfile.TemporaryDirectory(prefix="endive-tables-")
    with directory as place, spark_session(f"local[{CORES}]", settings=SETTINGS) as spark:
        done = rounds(spark, Path(place), rows, count)
    body = result(done, rows, load_before)
    print(json.dumps(body, indent=2))
    if not quick:
        print(f"wrote {save('tables', body)}")


if __name__ == "__main__":
    main()
