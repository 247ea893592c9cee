"""Ten million rows through the data source `endive`, beside plain Parquet in the same session, turn by turn.

    python -m benchmarks.tables [ROWS [ROUNDS]]

Each round writes the same frame as plain Parquet and through the data source, then reads every column of both, and of
the table's files natively. Rounds alternate, so that whatever else the machine does falls on all of them; ratios are
between medians. Every read is checked by its sums.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.report import save, spread
from endive.pipeline.session import spark_session
from endive.pipeline.tables import read_native

ROWS = 10_000_000
ROUNDS = 5
CORES = 2
HEAP = "4g"
COLUMNS = (
    "id", "id % 1000 as config", "cast(id % 7 as int) as seed", "rand(1) * 1000 as latency_ms", "rand(2) as share",
    "timestamp_millis(1700000000000 + id) as moment", "concat('status-', id % 5) as status", "id % 3 = 0 as committed",
)  # fmt: skip
"""Eight columns as of simulated transactions: numbers, a time, a few words, a flag."""

AIMS = {"write": 2.5, "read": 2.5, "native_read": 1.2}


def frame_of(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2 * CORES).selectExpr(*COLUMNS)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def read_everything(frame: DataFrame) -> None:
    """Read all columns of all rows, and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


def check(frame: DataFrame, rows: int) -> None:
    found = frame.agg(f.count("*"), f.sum("id"), f.sum(f.length("status")), f.max("moment")).first()
    if found is None or found[0] != rows or found[1] != rows * (rows - 1) // 2:
        raise SystemExit(f"not what was written: {found}")


def one_round(spark: SparkSession, frame: DataFrame, url: str, name: str, plain: str) -> dict[str, float]:
    """Write and read in every way; return what each took."""
    writer = frame.write.format("endive").option("catalog", url).mode("append")
    source = spark.read.format("endive").option("catalog", url)
    return {
        "write_parquet": timed(lambda: frame.write.parquet(plain)),
        "write": timed(lambda: writer.save(name)),
        "read_parquet": timed(lambda: read_everything(spark.read.parquet(plain))),
        "read": timed(lambda: read_everything(source.load(name))),
        "native_read": timed(lambda: read_everything(read_native(spark, url, name))),
    }


def rounds(spark: SparkSession, place: Path, rows: int, count: int) -> dict[str, list[float]]:
    url, frame = (place / "lake").as_uri(), frame_of(spark, rows)
    options = {"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog", "uri": url}
    samples: list[dict[str, float]] = []
    with load_catalog("endive", **options) as catalog:
        catalog.create_namespace("db")
        for number in range(count + 1):
            name = f"db.t{number}"
            catalog.create_table(name, frame.limit(0).toArrow().schema)
            samples.append(one_round(spark, frame, url, name, str(place / f"plain{number}")))
            check(spark.read.format("endive").option("catalog", url).load(name), rows)
            check(read_native(spark, url, name), rows)
            print({key: round(value, 1) for key, value in samples[-1].items()}, flush=True)
    # The first one starts the JVM's compiler and Python's workers.
    return {key: [sample[key] for sample in samples[1:]] for key in samples[0]}


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    count = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    settings = {"spark.driver.memory": HEAP, "spark.sql.parquet.compression.codec": "zstd"}
    directory = tempfile.TemporaryDirectory(prefix="endive-tables-")
    with directory as place, spark_session(f"local[{CORES}]", settings=settings) as spark:
        took = rounds(spark, Path(place), rows, count)
    figures = {name: spread(samples) for name, samples in took.items()}
    medians = {name: float(figure["median"]) for name, figure in figures.items() if isinstance(figure["median"], float)}
    beside = {"write": "write_parquet", "read": "read_parquet", "native_read": "read_parquet"}
    ratios = {name: round(medians[name] / medians[other], 2) for name, other in beside.items()}
    body = {
        "unit": "s",
        "rows": rows,
        "columns": len(COLUMNS),
        "rounds": count,
        "cores": CORES,
        "heap": HEAP,
        "seconds": figures,
        "ratio_to_parquet": ratios,
        "aim_at_most": AIMS,
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "note": "Plain Parquet by Spark's own reader and writer, same rows, same codec (zstd), same session, rounds "
        "turn by turn; a first round is left out. All columns are read. With a load average above the cores, other "
        "work ran too: look at the ratios.",
    }
    print(json.dumps(body, indent=2))
    print(f"wrote {save('tables', body)}")


if __name__ == "__main__":
    main()
