"""Spark's Python daemon with the simulator already loaded: `spark.python.daemon.module=endive.spark.daemon`.

Spark runs one daemon on each host and forks a worker from it for every core. What the daemon has imported, its
workers share: without this module each of them would load Numba, PyArrow and the compiled kernel by itself.

What makes the fork safe: the daemon has one thread, so no lock can be held by a thread that the worker does not have.
OpenBLAS and PyArrow's allocator would start threads when loaded, which the settings below prevent; Numba compiles in
the calling thread, and the kernel runs in it; PyArrow starts its other threads when they are first needed, which is
after the fork.
"""

import gc
import os
import sys
import zipimport
from collections.abc import Callable
from contextlib import suppress

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Spark runs one worker per core; threads inside of them would compete for the cores."""

MILLISECOND = """
[simulation]
duration_ms = 1
[storage]
provider = "instant"
[transaction]
inter_arrival = { scale = 1 }
"""


def prepare(planning: bool = False) -> None:
    """Load the modules of tasks into memory that the workers share; `planning`: the modules of planning."""
    os.environ |= ONE_THREAD
    # Before each task PySpark 4.1 lists the zip files on the path again, pyspark.zip among them: a tenth of a second
    # per task. They do not change while a daemon lives.
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign] # noqa: ARG005
    if planning:
        warm_tables()
    else:
        import pandas  # noqa: PLC0415, F401 - they read the variables above
        import pyarrow.dataset  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415, F401
        import pyspark.worker  # noqa: PLC0415, F401

        warm_engine()
    # Spark runs Python's garbage collector after each task. Exclude the modules, so that their pages stay shared.
    gc.collect()
    gc.freeze()


def warm_engine() -> None:
    """Load the compiled kernel by simulating one millisecond; compile it if it is not cached.

    Without the simulator's packages there is nothing to load: the data source needs none of them.
    """
    with suppress(Exception):  # a daemon cannot report an error; the task will fail in the same way and report it
        from endive.sim.config.configuration import parse_configuration  # noqa: PLC0415
        from endive.sim.engines import simulate  # noqa: PLC0415

        simulate(parse_configuration(MILLISECOND), seed=1)


def warm_tables() -> None:
    """Load the modules for planning and committing: a second, which several processes of Spark would spend in turn."""
    import pyiceberg.io.pyarrow  # noqa: PLC0415
    import pyiceberg.table  # noqa: PLC0415, F401

    import endive.spark.source.streaming  # noqa: PLC0415, F401


def main() -> None:
    """Prepare, then serve Spark until it closes standard input.

    Spark names the kind of worker: `pyspark.worker` runs tasks, `pyspark.sql.…` plan and commit for sources.
    """
    prepare(planning=len(sys.argv) > 1 and sys.argv[1].startswith("pyspark.sql."))
    from pyspark import daemon  # noqa: PLC0415 - it reads the kind of worker from the command line when imported

    serve: Callable[[], None] = daemon.manager
    serve()


if __name__ == "__main__":
    main()
