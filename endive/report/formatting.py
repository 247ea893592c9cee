"""Numbers, names and dates as text for readers."""

import math
import re
from collections.abc import Hashable
from datetime import datetime

import numpy as np

KEY_TITLES = {
    "storage.provider": "Provider",
    "storage.profiles": "Profiles",
    "catalog.num_tables": "Tables",
    "catalog.type": "Catalog",
    "catalog.latency_ms": "Catalog latency (ms)",
    "transaction.cost_model": "Cost model",
    "transaction.operation_types": "Mix of operations",
    "transaction.retry": "Retries allowed",
    "transaction.writers": "Writers",
}
NONE = "\u2013"
"""A missing value."""


def is_missing(value: object) -> bool:
    """Whether a value is missing: None, or pandas' representation of it."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or str(value) == "<NA>"


def title_of(key: str) -> str:
    """Return a configuration key as the title of an axis or a control, with its unit."""
    if key in KEY_TITLES:
        return KEY_TITLES[key]
    words = key.replace(".", " ").replace("_", " ")
    if words.endswith(" ms"):
        words = f"{words.removesuffix(' ms')} (ms)"
    return capital(words)


def label_of(value: Hashable) -> str:
    """Return a parameter's value as text: `10` for 10.0, `true` for True."""
    if is_missing(value):
        return NONE
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    number = _number_of(value)
    if number is None:
        return str(value)
    return f"{number:.0f}" if number == int(number) and abs(number) < 1e15 else f"{number:.6g}"


def _number_of(value: Hashable) -> float | None:
    """Return a number; None for text, which may look like one."""
    if isinstance(value, str):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def sort_key(value: Hashable, written: str = "") -> tuple[int, float, tuple[tuple[float, str], ...]]:
    """Order numbers by size and missing values last; text by its place in the sweep file `written`, else by name."""
    if is_missing(value):
        return 3, 0.0, ()
    number = _number_of(value)
    if number is not None:
        return 0, number, ()
    place = written.find(f'"{value}"')
    return (2, 0.0, _natural(str(value))) if place < 0 else (1, float(place), ())


def _natural(text: str) -> tuple[tuple[float, str], ...]:
    """Return the parts of a text such that `90 %` comes before `100 %`."""
    return tuple((float(part), "") if part.isdigit() else (math.inf, part) for part in re.split(r"(\d+)", text) if part)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and thousands separators, never with an exponent."""
    if value is None or is_missing(value):
        return NONE
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def with_interval(mean: float | None, half_width: float | None) -> str:
    """Return a mean and its interval, both to the interval's second digit; a mean alone with three digits."""
    if mean is None or half_width is None or is_missing(mean) or is_missing(half_width) or half_width <= 0:
        return number(mean)
    places = min(5, max(0, 1 - math.floor(math.log10(half_width))))
    return f"{mean:,.{places}f} ± {half_width:,.{places}f}"


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return NONE if value is None or is_missing(value) else f"{100 * value:.1f} %"


def moment(text: str) -> str:
    """Return an ISO time in words; other text unchanged."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = f" {when:%Z}" if when.tzinfo else ""
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"


def capital(text: str) -> str:
    """Return a sentence with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
