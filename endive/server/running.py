"""Running servers: in the foreground for `endive serve`, or in a thread of a process that embeds one."""

import ipaddress
import secrets
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import uvicorn

from endive.catalog.catalog import KVCatalog
from endive.closing import Closing
from endive.errors import ConfigurationError
from endive.server.access import Tokens
from endive.server.application import Application
from endive.server.asgi import Asgi, Limits
from endive.server.connections import LimitedProtocol

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 30.0
DRAIN_S = 30
"""How long requests in progress may take when the server stops."""


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0: any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except OSError as error:
        opened.close()
        raise ConfigurationError(f"{host}:{port}", [f"cannot listen there: {error.strerror}"]) from error
    opened.listen(2048)
    opened.set_inheritable(False)
    return opened


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(asgi: Asgi, certificate: Path | None = None, key: Path | None = None) -> uvicorn.Server:
    """Return uvicorn's server; with a certificate and its key, for HTTPS."""
    config = uvicorn.Config(
        asgi,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return uvicorn.Server(config)


class RunningServer(Closing):
    """A server in a thread. Use it as a context manager, or call `close`."""

    def __init__(self, application: Application, limits: Limits, token: str) -> None:
        self.token = token
        """The bearer token that clients send."""
        self._socket = listen(LOOPBACK, 0)
        self.url = url_of(self._socket)
        self._asgi = Asgi(application, limits)
        self._server = server_of(self._asgi)
        self._thread = threading.Thread(target=self._run, name="endive-server", daemon=True)

    def start(self) -> Self:
        """Start the thread; return when the server answers."""
        self._thread.start()
        deadline = threading.Event()
        for _ in range(int(START_TIMEOUT_S / 0.01)):
            if self._server.started:
                return self
            if not self._thread.is_alive():
                break
            deadline.wait(0.01)
        raise RuntimeError("the server did not start")

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """Finish the requests in progress and stop. Idempotent."""
        if self._thread.is_alive():
            self._server.should_exit = True
            self._thread.join(DRAIN_S + 5)
            self._asgi.close()
        self._socket.close()

    @property
    def client_properties(self) -> dict[str, str]:
        """Properties for a client of the server, such as `load_catalog("lake", type="rest", **properties)`."""
        return {"uri": self.url, "token": self.token}


def serve_in_background(
    catalog: KVCatalog | Mapping[str, KVCatalog],
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> RunningServer:
    """Serve a catalog, or several by name, on a free loopback port with a random token. The catalogs stay open.

    Other users of the machine can reach the port, but not without the token.
    """
    warehouses = catalog if isinstance(catalog, Mapping) else {"lake": catalog}
    token = secrets.token_urlsafe(32)
    return RunningServer(Application(warehouses, Tokens.one(token)), limits, token).start()
