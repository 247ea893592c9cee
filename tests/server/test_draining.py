"""Requests in flight: a server that stops finishes them, and one with a full queue refuses further ones. TLS."""

import http.client
import ipaddress
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from endive.catalog import KVCatalog
from endive.server import Limits, RunningServer, serve_in_background
from endive.server.access import new_token

WAIT_S = 60.0


class Slow:
    """Lets loads of a namespace's properties wait until they are let go."""

    def __init__(self, catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.may_end = threading.Event()
        properties = catalog.namespace_properties

        def wait(namespace: object) -> dict[str, str]:
            self.entered.release()
            assert self.may_end.wait(WAIT_S)
            return properties(namespace)  # type: ignore[arg-type]

        monkeypatch.setattr(catalog, "namespace_properties", wait)


@pytest.fixture
def slow(catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    catalog.create_namespace("db")
    made = Slow(catalog, monkeypatch)
    yield made
    made.may_end.set()


def ask(running: RunningServer, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=WAIT_S)
    connection.request(method, path, body, {"Authorization": f"Bearer {running.token}"})
    response = connection.getresponse()
    found = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if is_so():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen")


def refuses_connections(running: RunningServer) -> bool:
    place = urlsplit(running.url)
    try:
        socket.create_connection((place.hostname or "", place.port or 0), timeout=WAIT_S).close()
    except ConnectionError:
        return True
    return False


def test_a_server_that_stops_finishes_the_request_in_flight(catalog: KVCatalog, slow: Slow) -> None:
    running = serve_in_background(catalog, Limits(threads=4))
    with ThreadPoolExecutor(2) as pool:
        answered = pool.submit(ask, running, "GET", "/v1/namespaces/db")
        assert slow.entered.acquire(timeout=WAIT_S)
        closed = pool.submit(running.close)
        wait_until(lambda: refuses_connections(running))
        assert not answered.done()
        assert not closed.done()
        slow.may_end.set()

        assert answered.result(WAIT_S)[0] == 200
        closed.result(WAIT_S)


def test_a_full_queue_refuses_a_request_before_anything_is_done(catalog: KVCatalog, slow: Slow) -> None:
    with (
        serve_in_background(catalog, Limits(threads=1, waiting_max=1)) as running,
        ThreadPoolExecutor(2) as pool,
    ):
        runs = pool.submit(ask, running, "GET", "/v1/namespaces/db")
        assert slow.entered.acquire(timeout=WAIT_S)
        waits = pool.submit(ask, running, "GET", "/v1/namespaces/db")
        wait_until(lambda: running._asgi._in_progress == 2)

        status, headers, body = ask(running, "POST", "/v1/namespaces", b'{"namespace": ["new"]}')

        assert (status, headers["retry-after"]) == (429, "1")
        assert "nothing was done" in json.loads(body)["error"]["message"]
        slow.may_end.set()
        assert (runs.result(WAIT_S)[0], waits.result(WAIT_S)[0]) == (200, 200)
        assert not catalog.namespace_exists("new")
        assert ask(running, "POST", "/v1/namespaces", b'{"namespace": ["new"]}')[0] == 200


# TLS.


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for loopback that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "endive")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@pytest.mark.slow
def test_https_is_served_and_plain_http_is_not(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    token, line = new_token("ada")
    (tmp_path / "tokens.toml").write_text(f"[tokens]\n{line}\n")
    with KVCatalog.create(str(tmp_path / "lake")):
        pass
    command = [sys.executable, "-m", "endive", "serve", str(tmp_path / "lake"), "--port", "0"]
    command += ["--tokens", str(tmp_path / "tokens.toml")]
    command += ["--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1])]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = next(one for one in process.stderr if "listening on" in one)
            place = urlsplit(line.split()[2].rstrip(";"))
            assert place.scheme == "https"
            trusting = ssl.create_default_context(cafile=str(certificate[0]))

            def status_of(connection: http.client.HTTPConnection, path: str) -> int:
                with closing(connection):
                    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                    return connection.getresponse().status

            def secure(context: ssl.SSLContext) -> http.client.HTTPConnection:
                return http.client.HTTPSConnection(place.netloc, timeout=WAIT_S, context=context)

            assert status_of(secure(trusting), "/health") == 200
            assert status_of(secure(trusting), "/v1/config") == 403  # a token without grants
            with pytest.raises((http.client.HTTPException, OSError)):
                status_of(http.client.HTTPConnection(place.netloc, timeout=WAIT_S), "/health")
            with pytest.raises(ssl.SSLCertVerificationError):
                status_of(secure(ssl.create_default_context()), "/health")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) in (0, -signal.SIGTERM)
