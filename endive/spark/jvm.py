"""Spark's JVM as a child process: started with a time limit, with its output in a log, and always ended.

PySpark can start the JVM itself, but then its output goes to the terminal, a start can hang forever, and the JVM stays
until Python ends. Here PySpark connects to a running JVM through environment variables.

The JVM ends when its standard input is closed. So it also ends when this process is killed.
"""

import contextlib
import os
import re
import signal
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark

from endive.errors import SparkUnavailableError

START_TIMEOUT_S = 180.0
"""Five seconds on an idle machine; a busy one may take half a minute."""

STOP_TIMEOUT_S = 20.0

DEATH_S = 2.0
"""A process that has closed its connections has ended by then."""

OUT_OF_MEMORY = {52: "ran out of memory", -9: "was killed, as Linux does when memory runs out,"}
"""By exit code: Spark's own for it, and a signal's."""

LOG_LINES = 8
NOISE = re.compile(
    r"\s*at |\s*\.\.\. \d+ more|WARNING: |Picked up |Using Spark's default|Setting |To adjust logging"
    r"|.* WARN (NativeCodeLoader|SparkConf)"
)
"""Lines of the log that every session has, and the inner part of stack traces."""


class Jvm:
    """A running JVM that waits for PySpark to connect."""

    def __init__(self, settings: Mapping[str, str], environment: Mapping[str, str], directory: Path) -> None:
        self._log = directory / "spark.log"
        connection = directory / "connection"
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-submit")]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        variables = {**environment, "SPARK_HOME": str(home), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - PySpark's own script
                [*command, "pyspark-shell"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,  # Ctrl-C reaches Python alone, which ends the JVM in order
            )
        try:
            self._wait(connection)
            self.port, self.secret = _read_connection(connection)
        except BaseException:
            self.stop()
            raise

    def _wait(self, connection: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not connection.is_file():
            if self._process.poll() is not None:
                raise self.ended_error("at its start")
            if time.monotonic() > deadline:
                raise self.error(f"Spark's JVM did not start within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether the process has ended, or is about to: its connections break a moment before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH_S)
        return self._process.poll() is not None

    def error(self, problem: str, remedy: str = "the lines below may show the cause") -> SparkUnavailableError:
        """Return an error with the last relevant lines of the JVM's log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        relevant = [line.strip() for line in lines if line.strip() and not NOISE.match(line)]
        return SparkUnavailableError(problem, remedy, relevant[-LOG_LINES:])

    def ended_error(self, when: str) -> SparkUnavailableError:
        """Return an error for a JVM that has ended unexpectedly."""
        code = self._process.returncode
        if code in OUT_OF_MEMORY:
            problem = f"Spark's JVM {OUT_OF_MEMORY[code]} {when}"
            return self.error(problem, "close other programs, or set its heap with SPARK_DRIVER_MEMORY, such as 8g")
        return self.error(f"Spark's JVM ended {when} with {f'signal {-code}' if code < 0 else f'code {code}'}")

    def stop(self) -> None:
        """End the process and wait for it: SIGTERM, then SIGKILL. Idempotent."""
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
                return

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole process group, which includes the launcher's Java while it starts Spark's."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _read_connection(path: Path) -> tuple[int, str]:
    """Read port and secret as PySpark's gateway writes them."""
    data = path.read_bytes()
    port, length = struct.unpack_from("!ii", data)
    return port, data[8 : 8 + length].decode()
