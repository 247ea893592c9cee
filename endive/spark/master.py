"""Where Spark runs: this machine, or a cluster by its URL."""

import os
import re
import socket
from dataclasses import dataclass

from endive.errors import ConfigurationError, SparkUnavailableError

TASK_ATTEMPTS = 12
"""A bin may have several runs that end their process, each of them twice. In local mode Spark has no further attempts
unless the URL sets them: one failed task would end the job."""

REACH_TIMEOUT_S = 5.0
"""A running master answers in milliseconds."""

FORMS = "write local, local[4], local[*], spark://host:7077, yarn or k8s://https://host:443"


@dataclass(frozen=True)
class Master:
    """A checked master URL."""

    url: str
    """The URL for Spark."""
    cores: int | None = None
    """Cores of this machine to use; None on a cluster."""
    addresses: tuple[tuple[str, int], ...] = ()
    """Host and port of each master of a standalone cluster."""

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine, in one JVM."""
        return self.cores is not None


def cores_here() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def parse_master(text: str | None) -> Master:
    """Check a master URL; None is this machine with all its cores.

    Local mode gets task attempts where the URL gives none. Raises `ConfigurationError` for a URL that Spark would
    not understand.
    """
    text = "local[*]" if text is None else text.strip()
    if text.startswith("local"):
        return _local(text)
    if text.startswith("spark://"):
        return Master(text, addresses=tuple(_address(text, part) for part in text.removeprefix("spark://").split(",")))
    if text == "yarn" or text.startswith("k8s://"):
        return Master(text)
    raise _error(text, "not a master URL of Spark")


def _local(text: str) -> Master:
    match = re.fullmatch(r"local(?:\[\s*(\*|[1-9]\d*)\s*(?:,\s*([1-9]\d*)\s*)?\])?", text)
    if match is None:
        raise _error(text, "not a local master of Spark")
    given, attempts = match[1] or "1", match[2] or str(TASK_ATTEMPTS)
    cores = cores_here() if given == "*" else int(given)
    return Master(f"local[{cores},{attempts}]", cores=cores)


def _address(url: str, text: str) -> tuple[str, int]:
    match = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", text)
    if match is None:
        raise _error(url, f"{text!r} is not host:port")
    if not 0 < int(match[2]) < 65536:
        raise _error(url, f"{match[2]} is no port")
    return match[1].strip("[]"), int(match[2])


def _error(url: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"master {url!r}", [f"{problem}; {FORMS}"])


def reach(master: Master) -> str | None:
    """Return this machine's address as a standalone master sees it; None for masters without an address.

    Raises `SparkUnavailableError` if no master answers, at once instead of after Spark's own minute of retries.
    """
    problems = []
    for host, port in master.addresses:
        try:
            with socket.create_connection((host, port), REACH_TIMEOUT_S) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or 'no answer'}")
    if not problems:
        return None
    raise SparkUnavailableError(
        f"no Spark master answers at {master.url} ({'; '.join(problems)})",
        "start it, or correct the URL: it is at the top of the master's web page, usually http://HOST:8080",
    )
