"""A proxy before an S3 server that refuses every n-th request, by turns before and after it takes effect."""

import http.client
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass
class Refusals:
    """What the proxy does, and has done. Tests may change it while it runs."""

    every: int = 20
    """Every so many requests one is refused; 0: none."""
    denial: tuple[int, bytes] | None = None
    """Status and body for every write; None: writes are passed on."""
    denies_reads: bool = False
    """Whether the denial is for reads, too."""
    denies_from: tuple[str, tuple[int, bytes]] | None = None
    """Part of a path, and the denial that begins with the first write of such a path."""
    interrupt: Callable[[bool], None] | None = None
    """Called in every request: with False before it takes effect, with True afterwards and before the reply."""
    requests: int = 0
    refused: int = 0
    lost: int = 0
    """Requests that took effect, but whose reply was lost."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def next(self) -> int:
        self.requests = next(self._numbers)
        return self.requests


@contextmanager
def refusing_proxy(endpoint: str, refusals: Refusals | None = None) -> Iterator[tuple[str, Refusals]]:
    """Provide the address of a proxy before `endpoint`, and what it does."""
    chosen = refusals or Refusals()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(urlsplit(endpoint).netloc, chosen))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", chosen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def handler_for(upstream: str, refusals: Refusals) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            number = refusals.next()
            if refusals.interrupt:
                refusals.interrupt(False)
            is_write = self.command in ("PUT", "POST", "DELETE")
            if refusals.denies_from and is_write and refusals.denies_from[0] in self.path:
                refusals.denial = refusals.denies_from[1]
            if refusals.denial and (is_write or refusals.denies_reads):
                self.answer(*refusals.denial)
                return
            is_refused = refusals.every and number % refusals.every == 0
            if is_refused and number % (2 * refusals.every):
                refusals.refused += 1
                self.answer(503, SLOW_DOWN)
                return
            connection = http.client.HTTPConnection(upstream, timeout=60)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                reply = connection.getresponse()
                content = reply.read()
            finally:
                connection.close()
            if refusals.interrupt:
                refusals.interrupt(True)
            if is_refused:
                refusals.lost += 1
                self.close_connection = True
                return
            self.answer(reply.status, content, reply.getheaders())

        def answer(self, status: int, content: bytes, headers: list[tuple[str, str]] | None = None) -> None:
            self.send_response_only(status)
            length = None
            for name, value in headers or []:
                if name.lower() == "content-length":
                    length = value  # of a HEAD, it is that of the object
                elif name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Print nothing."""

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815 - the base class's names

    return Handler
