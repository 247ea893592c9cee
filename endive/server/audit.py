"""The audit log: which caller changed what, or was refused.

An event of the logger `endive.server.audit` for every request that may change something, and for every request that
was refused; `audit_to` writes them to a file, one JSON object a line. Events hold names, and neither tokens nor bodies.
"""

import logging
from pathlib import Path

from endive.catalog.model.keys import escaped
from endive.catalog.model.names import Identifier, text_of
from endive.errors import ConfigurationError
from endive.logs import Fact, JsonLines, log_event
from endive.server.http import Request, Response
from endive.server.routes import Call

audit = logging.getLogger("endive.server.audit")

NAMES_MAX = 100
"""Tables of a transaction that an event names."""


def record(operation: str, call: Call | None, request: Request, response: Response, changes: bool) -> None:
    """Log a request, if it belongs into the audit log."""
    is_refused = response.status in (401, 403)
    if not (changes or is_refused) or not audit.isEnabledFor(logging.INFO):
        return
    facts: dict[str, Fact] = {
        "request_id": request.id,
        "client": request.client,
        "principal": call.guard.principal.name if call is not None else "",
        "operation": operation,
        "path": request.path,
        "on": touched_names(call) if call is not None else "",
        "commit_id": request.headers.get("idempotency-key", ""),
        "status": response.status,
    }
    event = "refused" if is_refused else "changed" if response.status < 400 else "not_changed"
    log_event(audit, event, logging.INFO, **facts)


def touched_names(call: Call) -> str:
    """Return the namespaces, tables and views that a request names."""
    return ", ".join(map(_escaped, call.guard.touched[:NAMES_MAX]))


def _escaped(name: Identifier) -> str:
    """Return a name that no other one looks like: dots and commas in it are written as in URLs."""
    return text_of(tuple(map(escaped, name)))


def audit_to(path: Path) -> logging.Handler:
    """Append the audit log to a file; return the handler."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(str(path), [f"the audit log cannot be written: {error.strerror}"]) from error
    handler.setFormatter(JsonLines())
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    return handler
