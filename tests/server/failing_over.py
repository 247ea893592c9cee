"""Servers on one bucket that are killed, stopped and cut off under load, and what clients have seen.

    python -m tests.server.failing_over DIRECTORY '{"failures": 9}'

Clients commit a key each and load the table, by turns. A client whose server does not answer repeats the request under
its idempotency key at the next one. Prints one line of JSON: the verdict.
"""

import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from threading import Event, Thread
from uuid import UUID

from endive.catalog import KVCatalog
from endive.drivers.blocking import random_id
from tests.catalog.tables import NUMBERS
from tests.server.cutting import Cuttable
from tests.server.histories import History, violations
from tests.servers.conftest import answers, free_port

ROOT = Path(__file__).parents[2]
NAME = ("db", "t")
PATH = "/v1/namespaces/db/tables/t"
KILL, STOP, CUT = "kill", "stop", "cut"
PREFIX = "key."
CLIENT_TIMEOUT_S = 2.0
"""A client's patience with one server. A server that is stopped or cut off is silent: this is most of an outage."""
START_S = 120.0
RECOVERY_S = 60.0


@dataclass(frozen=True)
class Plan:
    """How hard it is tried."""

    servers: int = 2
    clients: int = 4
    failures: int = 3
    kinds: tuple[str, ...] = (KILL, STOP)
    writer: str = "shared"
    endpoint: str = ""
    """An S3 endpoint, with the bucket `bucket`; empty: a directory."""
    early: bool = False
    """Use the mutant that acknowledges before the PUT."""
    load_s: float = 1.0
    """Load between two failures."""
    failed_s: float = 2.0
    """How long a server stays stopped or cut off."""


@dataclass
class Verdict:
    """Counts of a run, and the faults found in it."""

    acknowledged: int
    loads: int
    failures: dict[str, int]
    outages_s: list[float]
    """For each failure, the longest time that a client waited for its next acknowledgement."""
    missing: list[str]
    """Acknowledged, and not there."""
    commits_too_many: int
    """Versions of the table beyond its keys: commits that were applied twice."""
    violations: list[str]
    findings: list[str] = field(default_factory=list)
    """Of `catalog.check()`."""


@dataclass
class Server:
    """A server process on a port that it keeps."""

    url: str
    directory: Path
    plan: Plan
    proxy: Cuttable | None
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = ["tests.server.early"] if self.plan.early else ["endive", "serve"]
        command = [sys.executable, "-m", *program, self.url, "--port", str(self.port)]
        command += ["--property", f"endive.writer={self.plan.writer}"]
        if self.proxy is not None:
            command += ["--endpoint", self.proxy.url, "--property", "s3.region=us-east-1"]
        with (self.directory / f"server-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def wait(self) -> None:
        deadline_s = time.monotonic() + START_S
        while not answers(f"http://127.0.0.1:{self.port}/ready"):
            if time.monotonic() > deadline_s:
                raise TimeoutError((self.directory / f"server-{self.port}.log").read_text()[-2000:])
            time.sleep(0.1)

    def fail(self, kind: str) -> None:
        assert self.process is not None
        if kind == CUT:
            assert self.proxy is not None
            self.proxy.cut()
        else:
            self.process.send_signal(signal.SIGKILL if kind == KILL else signal.SIGSTOP)

    def recover(self, kind: str) -> None:
        assert self.process is not None
        if kind == CUT and self.proxy is not None:
            self.proxy.mend()
        elif kind == STOP:
            self.process.send_signal(signal.SIGCONT)
        else:
            self.process.wait()
            self.start()
        self.wait()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Client:
    """Commits and loads until it is stopped."""

    def __init__(self, number: int, servers: Sequence[Server], history: History, stopped: Event) -> None:
        self._number = number
        self._servers = servers
        self._place = number
        self._history = history
        self._stopped = stopped
        self.acknowledged_s: list[float] = []

    def run(self) -> None:
        for count in itertools.count():
            if self._stopped.is_set():
                return
            self._commit(f"{PREFIX}{self._number}-{count}")
            self._load()
            time.sleep(0.01)

    def _commit(self, key: str) -> None:
        body = json.dumps({"updates": [{"action": "set-properties", "updates": {key: "1"}}]}).encode()
        headers = {"idempotency-key": str(UUID(random_id())), "content-type": "application/json"}
        commit = self._history.begin(key)
        if self._ask("POST", body, headers) is not None:
            commit.ended_s = time.monotonic()
            self.acknowledged_s.append(commit.ended_s)

    def _load(self) -> None:
        while not self._stopped.is_set():
            began_s = time.monotonic()
            found = self._try("GET", b"", {})
            if found is not None:
                self._history.loaded(keys_of(found), began_s)
                return
            self._place += 1

    def _ask(self, method: str, body: bytes, headers: dict[str, str]) -> bytes | None:
        """Repeat a request at one server after the other; None if the end came first."""
        while not self._stopped.is_set():
            found = self._try(method, body, headers)
            if found is not None:
                return found
            self._place += 1
            time.sleep(0.02)
        return None

    def _try(self, method: str, body: bytes, headers: dict[str, str]) -> bytes | None:
        server = self._servers[self._place % len(self._servers)]
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=CLIENT_TIMEOUT_S)
        try:
            connection.request(method, PATH, body, headers)
            response = connection.getresponse()
            found = response.read()
            return found if response.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def keys_of(body: bytes) -> list[str]:
    return [name for name in json.loads(body)["metadata"]["properties"] if name.startswith(PREFIX)]


def opened(url: str, plan: Plan) -> KVCatalog:
    reach = {"s3.endpoint": plan.endpoint, "s3.region": "us-east-1"} if plan.endpoint else {}
    return KVCatalog.create(url, None, reach)


def run(directory: Path, plan: Plan) -> Verdict:
    """Run servers, clients and failures; return the verdict."""
    url = f"s3://bucket/failing-over-{random_id()}" if plan.endpoint else str(directory / "lake")
    with opened(url, plan) as catalog:
        catalog.create_namespace("db")
        catalog.create_table(NAME, NUMBERS)
    history, stopped = History(), Event()
    with ExitStack() as stack:
        servers = []
        for _ in range(plan.servers):
            proxy = stack.enter_context(Cuttable(plan.endpoint)) if plan.endpoint else None
            servers.append(Server(url, directory, plan, proxy))
            stack.callback(servers[-1].end)
        for server in servers:
            server.start()
        for server in servers:
            server.wait()
        clients = [Client(number, servers, history, stopped) for number in range(plan.clients)]
        threads = [Thread(target=client.run, daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        outages_s = [fail(servers, clients, plan, number) for number in range(plan.failures)]
        time.sleep(plan.load_s)
        stopped.set()
        for thread in threads:
            thread.join(60)
    return judge(url, plan, history, outages_s)


def fail(servers: Sequence[Server], clients: Sequence[Client], plan: Plan, number: int) -> float:
    """Let one server fail and recover under load; return the longest time that a client waited meanwhile."""
    time.sleep(plan.load_s)
    kind, victim = plan.kinds[number % len(plan.kinds)], servers[number % len(servers)]
    failed_s = time.monotonic()
    victim.fail(kind)
    outage_s = max(waited(client, failed_s) for client in clients)
    time.sleep(max(0.0, failed_s + plan.failed_s - time.monotonic()))
    victim.recover(kind)
    return outage_s


def waited(client: Client, failed_s: float) -> float:
    """Return the time from a failure to the client's next acknowledgement."""
    while time.monotonic() < failed_s + RECOVERY_S:
        if client.acknowledged_s and client.acknowledged_s[-1] > failed_s:
            return next(one for one in client.acknowledged_s if one > failed_s) - failed_s
        time.sleep(0.01)
    return RECOVERY_S


def judge(url: str, plan: Plan, history: History, outages_s: Sequence[float]) -> Verdict:
    with opened(url, plan) as catalog:
        loaded = catalog.load_table(NAME)
        findings = catalog.check()
    there = {name for name in loaded.metadata.properties if name.startswith(PREFIX)}
    kinds = [plan.kinds[number % len(plan.kinds)] for number in range(plan.failures)]
    return Verdict(
        acknowledged=len(history.acknowledged),
        loads=len(history.loads),
        failures={kind: kinds.count(kind) for kind in plan.kinds},
        outages_s=[round(one, 3) for one in outages_s],
        missing=sorted(one.key for one in history.acknowledged if one.key not in there),
        commits_too_many=loaded.version - len(there),
        violations=violations(history)[:20],
        findings=findings,
    )


def main() -> None:
    given = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    plan = Plan(**{**given, **({"kinds": tuple(given["kinds"])} if "kinds" in given else {})})
    verdict = run(Path(sys.argv[1]), plan)
    outage_s = median(verdict.outages_s) if verdict.outages_s else 0.0
    print(json.dumps({**asdict(verdict), "median_outage_s": outage_s}))  # noqa: T201 - a program


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    main()
