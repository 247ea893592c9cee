"""Programs with a Spark session of their own, run as processes: `python -m tests.pipeline.jobs NAME ARGUMENT...`."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from endive.errors import EndiveError
from endive.spark.session import spark_session

QUICK = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
GATE_S = 120.0


def count() -> None:
    """Print the sum of ids that went through a Python worker."""
    with spark_session("local[2]", settings=QUICK) as spark:
        rows = spark.range(0, 10, 1, 2).mapInArrow(through, "id long").collect()
        sys.stdout.write(f"{sum(row.id for row in rows)}\n")


def through(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def wait(directory: str, master: str = "local[2]") -> None:
    """Run tasks that say that they are there, then wait for the file `go`; print the ids that come out."""
    with spark_session(master, settings=QUICK) as spark:
        jvm = spark.sparkContext._gateway.jvm  # type: ignore[union-attr]
        Path(directory, "jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()), encoding="ascii")
        rows = spark.range(0, 8, 1, 8).mapInArrow(gate(Path(directory)), "id long").collect()
        sys.stdout.write(f"{sorted(row.id for row in rows)}\n")


def gate(directory: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def pass_when_open(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        daemon = os.getppid()
        executor = Path(f"/proc/{daemon}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1]
        (directory / f"task-{executor}").touch()
        deadline = time.monotonic() + GATE_S
        while not (directory / "go").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield from batches

    return pass_when_open


def follow(url: str, checkpoint: str) -> None:
    """Copy what is appended to the table `db.t` into `db.out`, until killed."""
    with spark_session("local[2]", settings=QUICK) as spark:
        options = {"catalog": url, "checkpointLocation": checkpoint}
        frame = spark.readStream.format("endive").options(**options).load("db.t")
        frame.writeStream.format("endive").options(**options).start("db.out").awaitTermination()


def read_iceberg(package: str, *locations: str) -> None:
    """Print rows of tables, by their metadata files, as Iceberg's own runtime reads them: a list of JSON for each."""
    with spark_session("local[2]", settings={**QUICK, "spark.jars.packages": package}) as spark:
        for location in locations:
            rows = spark.read.format("iceberg").load(location).selectExpr("to_json(struct(*)) as row").collect()
            sys.stdout.write(json.dumps(sorted(row["row"] for row in rows)) + "\n")


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except EndiveError as error:
        sys.exit(str(error))
