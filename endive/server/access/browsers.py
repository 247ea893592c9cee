"""Requests that a foreign web page makes through the browser of a person who can reach the server.

A server on loopback without authentication trusts every process of the machine, and a browser is one: a page on the
Internet could send it a POST (its answer is hidden from that page, its effect is not), or let its own host name resolve
to 127.0.0.1 and read the answers as well. So a request with an `Origin` other than the server's own host is refused,
and without authentication also one to a host name that is not this machine's.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from endive.server.errors import HttpError
from endive.server.http import Request


def require_own_page(request: Request, is_open: bool) -> None:
    """Refuse requests of foreign pages. `is_open`: the server has no authentication."""
    host = request.headers.get("host", "")
    if is_open and host and not _is_here(host):
        raise HttpError(
            403, "ForbiddenException", f"A server without authentication answers to names of this machine, not {host}"
        )
    origin = request.headers.get("origin")
    if origin is not None and _place(origin) != host:
        raise HttpError(403, "ForbiddenException", f"Pages of {origin} may not use this server")


def _place(origin: str) -> str | None:
    """Return the host and port of a page; None if that is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_here(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets that do not belong together
        return False
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
