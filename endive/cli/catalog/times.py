"""Moments and durations, as people type and read them. A moment without a time zone is UTC."""

import re
from datetime import UTC, datetime

from endive.errors import ConfigurationError
from endive.wording import utc

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")


def duration_ms(text: str, option: str) -> int:
    """Return a duration such as `7d`, `90m` or `1.5h` in milliseconds."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ConfigurationError(option, [f"{text!r} is not a duration; write 30s, 15m, 12h, 7d or 2w"])
    return round(float(match[1]) * UNITS_MS[match[2]])


def moment_ms(text: str, option: str) -> int:
    """Return a moment such as `2026-03-01`, `2026-03-01T12:00:00+01:00` or Unix milliseconds in milliseconds."""
    if text.strip().isdigit() and len(text.strip()) > 8:
        return int(text)  # shorter ones are dates
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        example = "write 2026-03-01, 2026-03-01T12:00:00+01:00 or Unix milliseconds; without a zone it is UTC"
        raise ConfigurationError(option, [f"{text!r} is not a moment; {example}"]) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def limit_ms(text: str, now_ms: int, option: str) -> int:
    """Return the moment that lies a duration before now; or the moment itself, if the text is one."""
    if DURATION.fullmatch(text):
        return now_ms - duration_ms(text, option)
    try:
        return moment_ms(text, option)
    except ConfigurationError as error:
        problem = f"{text!r} is neither a duration, such as 7d or 12h, nor a moment, such as 2026-03-01"
        raise ConfigurationError(option, [problem]) from error


def span(duration_ms: int) -> str:
    """Return a duration as it can be typed, in the largest unit that it is a whole number of."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if duration_ms % UNITS_MS[unit] == 0)
    return f"{duration_ms // UNITS_MS[unit]}{unit}"


def shown(unix_ms: int) -> str:
    """Return a moment for people, in UTC to the second."""
    return utc(unix_ms)


def iso(unix_ms: int) -> str:
    """Return a moment for machines, to the millisecond; `--at` takes it as it is."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")
