"""A real standalone cluster of Spark on loopback: one master and two workers, each a process, each at an address and in
a working directory of its own. Nothing of it outlives the block, nor the process that started it."""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pyspark

from endive.spark.java import find_java

READY_S = 180.0
"""Ten seconds on an idle machine."""

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Worker:
    """A worker of the cluster: it starts executors, which are processes as well."""

    address: str
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def executors(self) -> list[int]:
        """Return the process ids of the executors that it has started."""
        return children(self.pid)


@dataclass
class Cluster:
    """A running cluster."""

    url: str
    """Its master's, as `--master` takes it."""
    page: str
    """The address of its master's web page."""
    master_pid: int
    workers: list[Worker] = field(default_factory=list)

    def status(self) -> dict[str, object]:
        """Return what the master says of the cluster."""
        with urlopen(f"{self.page}/json/", timeout=10) as answer:  # noqa: S310 - our own, on loopback
            status: dict[str, object] = json.load(answer)
        return status

    def kill(self, number: int) -> None:
        """Kill a worker and its executors, as a machine would that loses its power."""
        worker = self.workers[number]
        executors = worker.executors()
        for pid in (worker.pid, *executors):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.process.wait()


@contextmanager
def standalone_cluster(
    directory: Path, workers: int = 2, variables: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Give a cluster with workers of one core each, at 127.0.0.2 and up, each in a folder of `directory` of its own.

    `variables` are added to the environment of the processes.
    """
    started: list[subprocess.Popen[bytes]] = []
    try:
        process = start(started, directory, "127.0.0.1", "master.Master", "--webui-port", "0", variables=variables)
        log = directory / "127.0.0.1" / "log"
        page = found(process, log, r"MasterWebUI to \S+ and started at (http://\S+:\d+)")
        cluster = Cluster(found(process, log, r"Starting Spark master at (spark://\S+:\d+)"), page, process.pid)
        for number in range(workers):
            address = f"127.0.0.{number + 2}"
            options = ("--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(directory / address / "work"), cluster.url)
            worker = start(started, directory, address, "worker.Worker", *options, variables=variables)
            cluster.workers.append(Worker(address, worker))
        until(lambda: cluster.status()["aliveworkers"] == workers, started)
        yield cluster
    finally:
        end(started)


def start(
    started: list[subprocess.Popen[bytes]],
    directory: Path,
    address: str,
    name: str,
    *options: str,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    home, own = Path(pyspark.__file__).parent, directory / address
    own.mkdir()
    environment = os.environ | {
        "JAVA_HOME": str(find_java().path),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": address,
        "SPARK_PUBLIC_DNS": address,
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false",
        **(variables or {}),
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", address, "--port", "0"]
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=own,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - one call into libc
        )
    started.append(process)
    return process


def end_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it is gone, even if that was killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(started: list[subprocess.Popen[bytes]]) -> None:
    for process in reversed(started):
        for pid in (*children(process.pid), process.pid) if process.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that are still there."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text(encoding="ascii").split()]
    return found


def found(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait until a line of a log tells something, and return that."""

    def match() -> re.Match[str] | None:
        return re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))

    until(lambda: match() is not None, [process])
    told = match()
    assert told is not None
    return told[1]


def until(condition: Callable[[], bool], processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for a condition as long as all processes are alive, and not for ever."""
    deadline = time.monotonic() + READY_S
    while not condition():
        ended = [process.args for process in processes if process.poll() is not None]
        assert not ended, f"ended before the cluster was ready: {ended}"
        assert time.monotonic() < deadline, "the cluster did not become ready"
        time.sleep(0.05)
