"""Spark's Python daemon with the simulator already loaded: `spark.python.daemon.module=endive.spark.daemon`.

Spark runs one daemon on each host and forks a worker from it for every core. What the daemon has imported, its
workers share: without this module each of them would load Numba, PyArrow and the compiled kernel by itself.

What makes the fork safe: the daemon has one thread, so no lock can be held by a thread that the worker does not have.
OpenBLAS and PyArrow's allocator would start threads as soon as they are loaded, and are told not to; Numba compiles in
the thread that asks, and the kernel runs in it; PyArrow starts its other threads when they are first needed, which is
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
"""Spark runs as many workers as there are cores; threads inside of them would only be in each other's way."""

MILLISECOND = """
[simulation]
duration_ms = 1
[storage]
provider = "instant"
[transaction]
inter_arrival = { scale = 1 }
"""


def prepare(planning: bool = False) -> None:
    """Load all that a task may need, into memory that the workers share; `planning`: all that planning may need."""
    os.environ |= ONE_THREAD
    # PySpark 4.1 forgets before each task what is in the zip files on the path and lists them again, pyspark.zip
    # among them: a tenth of a second a task. They do not change while a daemon lives.
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign] # noqa: ARG005
    if planning:
        warm_tables()
    else:
        import pandas  # noqa: PLC0415, F401 - only now: the variables above are read when these are loaded
        import pyarrow.dataset  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415, F401
        import pyspark.worker  # noqa: PLC0415, F401

        warm_engine()
    # After each task Spark collects garbage. What is here now will never be any: leave it out, and the pages shared.
    gc.collect()
    gc.freeze()


def warm_engine() -> None:
    """Load the compiled kernel by running one simulated millisecond; compile it where no cache has it."""
    from endive.sim.config.configuration import parse_configuration  # noqa: PLC0415
    from endive.sim.engines import simulate  # noqa: PLC0415

    with suppress(
        Exception
    ):  # a daemon that ends has no way to say why; the task will fail in the same way, and say it
        simulate(parse_configuration(MILLISECOND), seed=1)


def warm_tables() -> None:
    """Load what planning and committing for a table take: a second, and Spark asks several processes in turn."""
    import pyiceberg.io.pyarrow  # noqa: PLC0415
    import pyiceberg.table  # noqa: PLC0415, F401

    import endive.spark.source.streaming  # noqa: PLC0415, F401


def main() -> None:
    """Prepare, then serve Spark until it closes standard input.

    Spark names the kind of worker: `pyspark.worker` runs tasks, `pyspark.sql.…` plan and commit for sources.
    """
    prepare(planning=len(sys.argv) > 1 and sys.argv[1].startswith("pyspark.sql."))
    from pyspark import daemon  # noqa: PLC0415 - which worker it runs it reads from the command line, when imported

    serve: Callable[[], None] = daemon.manager
    serve()


if __name__ == "__main__":
    main()
