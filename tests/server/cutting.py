"""A TCP proxy whose network can be cut: bytes stop in both directions, no connection is closed, and nothing is lost.

After `mend` the bytes go on. So a request of a server that was cut off arrives late, when another server has long taken
over: what a stalled network does.
"""

import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK = 65536


class Cuttable:
    """Forwards connections to an address until it is cut."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Stop all bytes."""
        self._flows.clear()

    def mend(self) -> None:
        """Let the bytes go on."""
        self._flows.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._flows.wait()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while chunk := source.recv(CHUNK):
                self._flows.wait()
                sink.sendall(chunk)
            self._flows.wait()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.mend()
        self._listener.close()
