"""Structured logs, by the standard library alone: a line is an event with a stable name, and facts.

    tell(log, "opened", epoch=3, next_slot=17)

is the message `opened epoch=3 next_slot=17` to whatever logging a program has set up. Name and facts are on the record
too, as `record.event` and `record.facts`, for filters and formatters; `JsonLines` is one. Names of events and facts
are an interface: docs/store.md lists them, and a test holds them to that list.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

Fact = str | int | float | bool | None
ROOT = "endive"
"""The logger above all of Endive's."""


class LogForm(StrEnum):
    """How events are written down."""

    TEXT = "text"
    JSON = "json"


def tell(log: logging.Logger, event: str, level: int = logging.INFO, **facts: Fact) -> None:
    """Log an event. Facts are plain values, with the unit last in their names."""
    _tell(log, event, level, facts)


def tell_error(log: logging.Logger, event: str, error: Exception, level: int = logging.WARNING, **facts: Fact) -> None:
    """Log an event that an error caused: its class and message are facts like others."""
    _tell(log, event, level, facts | {"error": type(error).__name__, "message": str(error)})


def _tell(log: logging.Logger, event: str, level: int, facts: Mapping[str, Fact]) -> None:
    if log.isEnabledFor(level):
        extra = {"event": event, "facts": facts}
        log.log(level, "%s", _line(event, facts), extra=extra, stacklevel=3)  # the place that told


def _line(event: str, facts: Mapping[str, Fact]) -> str:
    return " ".join((event, *(f"{name}={_brief(fact)}" for name, fact in facts.items())))


def _brief(fact: Fact) -> str:
    """Return a fact as JSON has it; text without blanks and quotes as it is."""
    plain = isinstance(fact, str) and fact and not any(sign in fact for sign in ' "\n')
    return str(fact) if plain else json.dumps(fact)


class JsonLines(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `event`, then the facts.

    A record that is no event, such as another library's, has `message` instead; a traceback is `trace`.
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
    """Write Endive's logs to a stream, as text or as JSON; return the handler, for whoever wants to remove it."""
    handler = logging.StreamHandler(stream)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form is LogForm.JSON else text)
    log = logging.getLogger(ROOT)
    log.addHandler(handler)
    log.setLevel(level)
    return handler
