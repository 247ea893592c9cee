"""One Spark session: local or on a cluster, quiet, with a Java that works, and nothing left behind.

    with spark_session() as spark:
        spark.range(10).count()

Only Endive's own messages reach the terminal. Spark's output goes to a log, whose last lines are part of the error if
the session cannot start or breaks.
"""

import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from endive.errors import SparkUnavailableError
from endive.spark.class_archive import class_archive
from endive.spark.java import JavaHome, find_java
from endive.spark.jvm import Jvm
from endive.spark.master import TASK_ATTEMPTS, Master, parse_master, reach
from endive.spark.shipping import package_archive, shipping_settings
from endive.spark.source import data_source as tables
from endive.spark.using import running_session

EXECUTOR_TIMEOUT_S = 120.0
"""How long a standalone cluster may take to provide the first executor."""

SOCKET_DIRECTORY_LENGTH_MAX = 60
"""A Unix socket's path has about 100 characters at most; Spark's file name takes 42 of them."""

HEAP_MIB = (1024, 8192)
"""Bounds of the JVM's heap. Spark spills to disk beyond it; Python workers and the page cache need memory too."""

FOREIGN = (
    "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS", "SPARK_API_MODE",
    "SPARK_CONNECT_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_HOME", "SPARK_LOCAL_REMOTE", "SPARK_REMOTE",
    "SPARK_TESTING",
)  # fmt: skip
"""Variables that would make PySpark use another Spark than its own."""

DAEMON = "endive.spark.daemon"

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Without them Arrow's Java checks bounds and nulls of each value again: a third of the cost of a row from Python."""

SET_BY_PYSPARK = ("PYSPARK_PYTHON", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")


@contextmanager
def spark_session(
    master: str | None = None,
    app: str = "endive",
    settings: Mapping[str, str] = MappingProxyType({}),
    java: JavaHome | None = None,
    ship: bool = False,
    sources: bool = True,
) -> Iterator[SparkSession]:
    """Provide a Spark session on this machine, or on the cluster with the URL `master`. It ends with the block.

    `settings` are Spark settings, which take precedence over Endive's. `java` is a result of `find_java`; None: it is
    called now. `ship` sends this package to the executors of a cluster. `sources` registers the format `endive`; a
    session without queries starts sooner if Spark SQL is left alone. If the process already has a session, that
    session is used unchanged and stays open. Raises `ConfigurationError` for a wrong URL, and `SparkUnavailableError`
    if there is no Java, no master at the URL, no start, or if the JVM ends before the block.
    """
    running = running_session(master)
    if running is not None:
        yield running
        return
    asked = parse_master(master)
    address = "127.0.0.1" if asked.is_local else reach(asked)
    home = (java or find_java()).path
    with _directory() as directory, _variables(asked, directory):
        if ship and not asked.is_local:
            settings = {**settings, **shipping_settings(package_archive(directory), settings)}
        chosen = _merged({**_settings(asked, address, directory), "spark.app.name": app}, settings)
        with class_archive(home, directory) as options:
            chosen[JAVA_OPTIONS] += f" {options}"
            with _running_jvm(chosen, _jvm_variables(home, address), directory) as jvm:
                spark = _connect(jvm, asked)
                if asked.addresses:
                    _wait_for_executor(jvm, spark, asked)
                if sources:
                    tables.register(spark)
                yield spark
                spark.stop()
                _disconnect()


@contextmanager
def _running_jvm(settings: Mapping[str, str], variables: Mapping[str, str], directory: Path) -> Iterator[Jvm]:
    """Provide a JVM that ends with the block, in every case."""
    _silence()
    jvm = Jvm(settings, variables, directory)
    try:
        yield jvm
    except (CapturedException, Py4JJavaError) as error:  # its text comes from the JVM, which will have ended by then
        raise PySparkException(str(error)).with_traceback(error.__traceback__) from None
    except (Py4JError, OSError, EOFError) as error:  # a lost connection to the JVM
        if not jvm.has_ended():
            raise
        raise jvm.ended_error("during the session") from error
    finally:
        try:
            jvm.stop()
        finally:
            _disconnect()


def _silence() -> None:
    """Suppress log messages that duplicate errors. Idempotent."""
    logging.getLogger().addFilter(_is_not_py4j)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Whether a log record is not Py4J's traceback about a lost JVM on the root logger."""
    return "py4j" not in Path(record.pathname).parts


def _connect(jvm: Jvm, master: Master) -> SparkSession:
    """Connect to a JVM that was started with its settings, and create a session."""
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(jvm.port), "PYSPARK_GATEWAY_SECRET": jvm.secret}
    path, handler = list(sys.path), signal.getsignal(signal.SIGINT)
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
        context = SparkContext(gateway=gateway)
        # Its thread would print a traceback when the JVM ends, as after Ctrl-C.
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        return SparkSession.builder.getOrCreate()
    except (Py4JError, ValueError, PySparkException) as error:
        if jvm.has_ended():
            raise jvm.ended_error("at its start") from error
        raise jvm.error(f"no Spark session can be started on {master.url}: {_cause(error)}") from None
    finally:
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            del os.environ[name]
        sys.path[:] = path  # PySpark adds the directory of files shipped with a job; there are none
        if threading.current_thread() is threading.main_thread():
            # PySpark's handler for Ctrl-C would use the connection to the JVM in the middle of another call.
            signal.signal(signal.SIGINT, handler)


def _cause(error: Exception) -> str:
    """Return the innermost message of an error that came from Java."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    cause = error.java_exception
    for _ in range(20):  # a chain of causes may be a ring
        if cause.getCause() is None:
            break
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString()).splitlines()[0].rstrip(".")


def _wait_for_executor(jvm: Jvm, spark: SparkSession, master: Master) -> None:
    """Wait until a standalone cluster has provided an executor. Without one, Spark's jobs would wait forever."""
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + EXECUTOR_TIMEOUT_S
    try:
        while context.getExecutorMemoryStatus().size() < 2:  # the Spark driver counts as one
            if time.monotonic() > deadline:
                raise jvm.error(
                    f"the cluster at {master.url} has provided no executor in {EXECUTOR_TIMEOUT_S:.0f} s",
                    "see on the master's web page whether it has workers with free cores and memory",
                )
            time.sleep(0.05)
    except Py4JJavaError as error:
        raise jvm.error(f"the cluster at {master.url} has ended the session: {_cause(error)}") from error


def _disconnect() -> None:
    """Close the connection to a JVM that has ended, so that the next session starts another one."""
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()
    if gateway is not None:
        gateway.shutdown()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _settings(master: Master, address: str | None, directory: Path) -> dict[str, str]:
    """Return Endive's Spark settings."""
    settings = {
        "spark.master": master.url,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY") or f"{heap_mib()}m",
        JAVA_OPTIONS: f'-Duser.timezone=UTC "-Djava.io.tmpdir={directory}" {ARROW_OPTIONS}',
        "spark.local.dir": str(directory),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": DAEMON,
        "spark.task.maxFailures": str(TASK_ATTEMPTS),
        **tables.SETTINGS,
        "spark.python.unix.domain.socket.enabled": str(len(str(directory)) <= SOCKET_DIRECTORY_LENGTH_MAX).lower(),
    }
    if address is not None:
        settings |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
    if master.cores is not None:
        settings |= {
            "spark.sql.shuffle.partitions": str(4 * master.cores),
            "spark.default.parallelism": str(master.cores),
        }
    return settings


def _merged(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return both. Given settings take precedence; Java options are joined, and Java uses the last of each."""
    merged = {**own, **given}
    if JAVA_OPTIONS in given:
        merged[JAVA_OPTIONS] = f"{own[JAVA_OPTIONS]} {given[JAVA_OPTIONS]}"
    return merged


def heap_mib() -> int:
    """Return the heap for Spark's JVM in MiB: a quarter of the machine's memory, within bounds."""
    lowest, highest = HEAP_MIB
    return min(max(_memory_bytes() // 4 // 2**20, lowest), highest)


def _memory_bytes() -> int:
    """Return the memory of the machine, or of the container that this process is confined to."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no control group, or no limit: "max"
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return whole


def _jvm_variables(java: Path, address: str | None) -> dict[str, str]:
    """Return the variables of the JVM's process."""
    variables = {**os.environ, "JAVA_HOME": str(java)}
    if address is not None:
        variables["SPARK_LOCAL_IP"] = address  # otherwise Spark resolves this machine's name
    return variables


@contextmanager
def _directory() -> Iterator[Path]:
    """Provide a directory for Spark's temporary files and remove it at the end."""
    try:
        path = Path(tempfile.mkdtemp(prefix="endive-"))
    except OSError as error:
        raise SparkUnavailableError(
            f"no directory for temporary files can be made ({error.strerror}: {error.filename})",
            "set TMPDIR to a directory with free space that you can write to",
        ) from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _python(directory: Path) -> str:
    """Return the Python for workers on this machine: this one, behind a script that selects Endive's daemon.

    Spark starts the processes that plan and commit for data sources with PySpark's own daemon, whatever
    `spark.python.daemon.module` is. Each of them would load PyIceberg itself, which takes a second or more.
    """
    python, shim = shlex.quote(sys.executable), directory / "python"
    shim.write_text(
        "#!/bin/sh\n"
        'case "$*" in *.lookup_data_sources) ;; "-m pyspark.daemon pyspark.sql."*) shift 2; '
        f'exec {python} -m {DAEMON} "$@" ;; esac\n'
        f'exec {python} "$@"\n',
        encoding="utf-8",
    )
    shim.chmod(0o755)
    try:
        subprocess.run([shim, "-c", ""], check=True, capture_output=True)  # noqa: S603 - the lines above
    except (OSError, subprocess.CalledProcessError):  # a directory from which nothing may be run
        return sys.executable
    return str(shim)


@contextmanager
def _variables(master: Master, directory: Path) -> Iterator[None]:
    """Set the variables that PySpark reads in this process, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in (*FOREIGN, *SET_BY_PYSPARK)}
    for name in FOREIGN:
        os.environ.pop(name, None)
    if master.is_local:
        os.environ["PYSPARK_PYTHON"] = _python(directory)
    elif "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
