"""HTTP by ASGI, without a framework: read a request within limits, run the application on a thread, send the answer.

Catalog calls block, so every request has a thread of a pool. Commits that wait there for the store become one commit
batch. When all threads are busy and the queue is full, a request is refused with 429 before anything was done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

from endive.drivers.blocking import random_id
from endive.logs import log_event
from endive.server.application import Application
from endive.server.errors import HttpError, bad_request, try_again
from endive.server.http import Request, Response, error_response, query_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Bounds of a request and of the work in progress."""

    body_bytes_max: int = 32 * 1024 * 1024
    """A commit that removes 100,000 snapshots has 2 MB; a schema of 10,000 columns 1 MB."""
    body_timeout_s: float = 60.0
    threads: int = 256
    """Requests that run at the same time: each mostly waits for the object store."""
    waiting_max: int = 1024
    """Requests that wait for a thread; more are refused."""
    waiting_timeout_s: float = 30.0
    """A request that waited longer for a thread is refused before anything is done: its client may have given up."""


UNKNOWN_BODY_BYTES_MAX = 64 * 1024
"""Bytes of a body that are read before the caller's token is checked."""

PROBES = ("/health", "/ready", "/metrics")
"""Paths that are asked for every few seconds: they are logged with level DEBUG only."""
PATH_CHARACTERS_MAX = 500
"""Characters of a path in the log."""

ONCE = (b"authorization", b"host", b"idempotency-key", b"origin")
"""Headers that decide what a request may do. A proxy in front might look at one, and the server at another."""


Around = Callable[[Callable[[Request], Response], Request, float], Response]
"""Answers a request by the function that it gets, such as `Tracing.answered`; the number: when the request came."""


class Asgi:
    """The ASGI application. `around`: answers each request in its thread, by the application."""

    def __init__(
        self,
        application: Application,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        around: Around | None = None,
    ) -> None:
        self._application = application
        self._around = around
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="endive-request")
        self._in_progress = 0

    def close(self) -> None:
        """Wait for the requests in progress, and end the threads."""
        self._pool.shutdown(wait=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        request_id, began_s = random_id(), perf_counter()
        try:
            request = await self._read(scope, receive, request_id)
            response = await self._run(request)
        except HttpError as error:
            response = error_response(error)
        _log_request(scope, request_id, response, perf_counter() - began_s)
        await _respond(response, request_id, scope["method"] == "HEAD", send)

    async def _read(self, scope: Scope, receive: Receive, request_id: str) -> Request:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if len(headers) != len(scope["headers"]):
            _require_once([name for name, _ in scope["headers"]])
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                body = await self._body(receive, headers)
        except TimeoutError as error:
            raise HttpError(408, "RequestTimeoutException", "The body did not arrive in time") from error
        query = query_of(scope["query_string"].decode("latin-1"))
        return Request(scope["method"], _raw_path(scope), query, headers, body, request_id, _client(scope))

    async def _body(self, receive: Receive, headers: Mapping[str, str]) -> bytes:
        """Return the body; of a caller without a valid token nothing, since its request is refused anyway."""
        parts, size, more, is_known = [], 0, True, False
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise bad_request("The connection ended before the body")
            part = message.get("body", b"")
            size += len(part)
            if size > self._limits.body_bytes_max:
                raise HttpError(
                    413, "BadRequestException", f"The body has more than {self._limits.body_bytes_max} bytes"
                )
            if size > UNKNOWN_BODY_BYTES_MAX and not is_known:
                loop = asyncio.get_running_loop()
                is_known = await loop.run_in_executor(self._pool, self._application.knows, headers)
                if not is_known:
                    return b""
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _run(self, request: Request) -> Response:
        if self._in_progress >= self._limits.threads + self._limits.waiting_max:
            raise try_again("Too many requests are in progress; nothing was done")
        self._in_progress += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._answer, request, monotonic())
        finally:
            self._in_progress -= 1

    def _answer(self, request: Request, queued_s: float) -> Response:
        if monotonic() - queued_s > self._limits.waiting_timeout_s:
            raise try_again("The request waited too long for a thread; nothing was done")
        if self._around is not None:
            return self._around(self._application.answer, request, queued_s)
        return self._application.answer(request)


def _log_request(scope: Scope, request_id: str, response: Response, seconds: float) -> None:
    """Log a request: its path, and neither its parameters nor its headers, which may hold secrets."""
    path = _raw_path(scope)
    log_event(
        log,
        "answered",
        level=logging.DEBUG if path in PROBES else logging.INFO,
        request_id=request_id,
        client=_client(scope),
        principal=response.caller,
        method=scope["method"],
        path=path[:PATH_CHARACTERS_MAX],
        status=response.status,
        ms=round(seconds * 1000, 3),
    )


def _raw_path(scope: Scope) -> str:
    """Return the path as it was sent, still percent-encoded."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path.decode("latin-1")


def _client(scope: Scope) -> str:
    """Return the client's address."""
    address: str = (scope.get("client") or ("",))[0]
    return address


def _require_once(names: list[bytes]) -> None:
    for one in ONCE:
        if names.count(one) > 1:
            raise bad_request(f"The header {one.decode()} is there more than once")


async def _respond(response: Response, request_id: str, is_head: bool, send: Send) -> None:
    headers = [(b"x-request-id", request_id.encode())]
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    if response.status not in (204, 304):
        headers.append((b"content-type", response.media_type.encode()))
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else response.body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
