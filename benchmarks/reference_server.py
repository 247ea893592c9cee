"""Iceberg's own REST server (the servlet of its test fixtures) with a database, to measure beside ours.

Its jars come with the compatibility kit: `pytest -m campaign tests/server/test_compatibility_kit.py` fetches them.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.servers.conftest import free_port, postgres

JARS = Path(__file__).parents[1] / "build" / "kit-1.11.0"
SOURCE = Path(__file__).with_name("LoopbackReferenceServer.java")
SQLITE, POSTGRESQL = "sqlite", "postgresql"
DATABASES = (SQLITE, POSTGRESQL)
CONNECTIONS = {SQLITE: "1", POSTGRESQL: "16"}
"""SQLite has one writer, and refuses a second one at once."""
START_S = 120.0
TABLE_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "type": "long", "required": False}],
}


@contextmanager
def reference_server(database: str) -> Iterator[str]:
    """Run Iceberg's reference server on a new database, and yield its address."""
    if not JARS.exists():
        raise SystemExit("the reference server's jars are missing: run tests/server/test_compatibility_kit.py once")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="endive-reference-")))
        settings = {
            "type": "jdbc",
            "warehouse": str(folder / "warehouse"),
            "clients": CONNECTIONS[database],
            "jdbc.schema-version": "V1",
        }
        if database == SQLITE:
            settings["uri"] = f"jdbc:sqlite:{folder}/catalog.db"
        else:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="endive-postgres-")))
            port = stack.enter_context(postgres(data, folder / "postgres.log"))
            settings |= {"uri": f"jdbc:postgresql://127.0.0.1:{port}/postgres", "jdbc.user": "endive"}
        yield stack.enter_context(_running(settings, folder))


@contextmanager
def _running(settings: dict[str, str], folder: Path) -> Iterator[str]:
    port, log = free_port(), folder / "server.log"
    subprocess.run(["javac", "-nowarn", "-cp", f"{JARS}/*", "-d", str(folder), str(SOURCE)], check=True)
    command = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{folder}:{JARS}/*"]
    command += [SOURCE.stem, str(port), *(f"{name}={value}" for name, value in settings.items())]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            deadline_s = time.monotonic() + START_S
            while not _answers(f"http://127.0.0.1:{port}/v1/config"):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise SystemExit(f"the reference server did not start: {log.read_text()[-2000:]}")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        urlopen(url).close()  # noqa: S310 - our own server
    except (URLError, OSError):
        return False
    return True


def create_tables(url: str, count: int) -> None:
    """Create the tables `db.t0` and so on."""
    _post(url, "namespaces", {"namespace": ["db"]})
    for place in range(count):
        _post(url, "namespaces/db/tables", {"name": f"t{place}", "schema": TABLE_SCHEMA})


def _post(url: str, path: str, body: object) -> None:
    headers = {"content-type": "application/json"}
    sent = Request(f"{url}/v1/{path}", json.dumps(body).encode(), headers, method="POST")  # noqa: S310
    with urlopen(sent) as answer:  # noqa: S310
        answer.read()
