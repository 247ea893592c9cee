"""Structured logs on the standard library: a line is an event with a stable name, and facts.

    log_event(log, "opened", epoch=3, next_slot=17)

logs the message `opened epoch=3 next_slot=17`. The record also carries `record.event` and `record.facts`, for filters
and formatters such as `JsonLines`. The names of events and facts are a public interface: docs/store.md lists them, and
a test compares the list with the code.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

Fact = str | int | float | bool | None
ROOT = "endive"
"""Name of the parent of all loggers of Endive."""


class LogForm(StrEnum):
    """Output format of logs."""

    TEXT = "text"
    JSON = "json"


def log_event(log: logging.Logger, event: str, level: int = logging.INFO, **facts: Fact) -> None:
    """Log an event. Facts are plain values, with the unit last in their names."""
    _log(log, event, level, facts)


def log_error(log: logging.Logger, event: str, error: Exception, level: int = logging.WARNING, **facts: Fact) -> None:
    """Log an event that an error caused, with the class and message of the error as facts."""
    _log(log, event, level, facts | {"error": type(error).__name__, "message": str(error)})


def _log(log: logging.Logger, event: str, level: int, facts: Mapping[str, Fact]) -> None:
    if log.isEnabledFor(level):
        extra = {"event": event, "facts": facts}
        log.log(level, "%s", _line(event, facts), extra=extra, stacklevel=3)  # the caller of log_event


def _line(event: str, facts: Mapping[str, Fact]) -> str:
    return " ".join((event, *(f"{name}={_brief(fact)}" for name, fact in facts.items())))


def _brief(fact: Fact) -> str:
    """Return a fact as JSON; text without blanks, quotes and control characters stays unquoted."""
    plain = isinstance(fact, str) and fact and fact.isprintable() and not any(sign in fact for sign in ' "')
    return str(fact) if plain else json.dumps(fact)


class JsonLines(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `event`, then the facts.

    A record that is not an event, such as another library's, has `message` instead; a traceback is `trace`.
    """

    def format(self, record: logging.LogRecord) -> str:
        event: str | None = getattr(record, "event", None)
        line: dict[str, Fact] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        line |= {"message": record.getMessage()} if event is None else {"event": event, **getattr(record, "facts", {})}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def show_logs(form: LogForm, stream: TextIO, level: int = logging.INFO) -> logging.Handler:
    """Write Endive's logs to a stream, as text or as JSON; return the handler, so that the caller can remove it."""
    handler = logging.StreamHandler(stream)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form is LogForm.JSON else text)
    log = logging.getLogger(ROOT)
    log.addHandler(handler)
    log.setLevel(level)
    return handler
