"""HTTP connections with limits on the head of a request: uvicorn's fast parser has none.

Without them a client could send headers without end, or one byte a minute, and hold memory and a connection for it.
The same goes for the fields after a chunked body (trailers) and for extensions of chunks. Trailers are not kept.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 64 * 1024
"""The request line and all headers, or anything else that is no body. A token with many groups has some kilobytes."""
HEAD_TIMEOUT_S = 30.0
"""From the connection, or the first byte of a later request, to the end of its headers."""

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s"
)
BODY = b'{"error":{"message":"The headers have more than %d bytes","type":"BadRequestException","code":431,"stack":[]}}'


class LimitedProtocol(HttpToolsProtocol):
    """A connection that ends if the head of a request is too large or too slow."""

    _head_bytes = 0
    """Received since the last part of a body, or since the last request."""
    _is_in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            body = BODY % HEAD_BYTES_MAX
            self.transport.write(TOO_LARGE % (len(body), body))
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._is_in_head:  # a later request of the connection
            self._is_in_head, self._head_bytes = True, 0
            self._start_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # else a trailer, which would become one of the request's headers
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._end_slow)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
