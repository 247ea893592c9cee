"""Names: namespaces of any depth, and tables in them.

A name is a tuple of levels. A string is split at its dots, as PyIceberg does it; a level that holds a dot itself has
to be given in a tuple.
"""

from functools import lru_cache

from endive.errors import ConfigurationError

Identifier = tuple[str, ...]
"""A namespace's levels; for a table, its namespace's levels and its own name."""

LEVELS_MAX = 16
LEVEL_BYTES_MAX = 1024


def identifier_of(name: str | Identifier) -> Identifier:
    """Return the levels of a name that may be dotted text."""
    return tuple(name) if isinstance(name, tuple | list) else tuple(name.split("."))


def namespace_of(name: str | Identifier) -> Identifier:
    """Return the levels of a namespace; raise with all errors in them."""
    return _checked("a namespace", identifier_of(name), levels_min=1)


def table_of(name: str | Identifier) -> Identifier:
    """Return the levels of a table's name; raise with all errors in them."""
    return _checked("a table", identifier_of(name), levels_min=2)


def text_of(identifier: Identifier) -> str:
    """Return a name with dots."""
    return ".".join(identifier)


@lru_cache(maxsize=4096)
def _checked(kind: str, levels: Identifier, levels_min: int) -> Identifier:
    errors = [f"a level is empty: {text_of(levels)!r}" for level in levels if not level.strip()]
    if len(levels) < levels_min:
        errors.append("a table's name needs a namespace, as in `namespace.table`" if levels_min > 1 else "it is empty")
    if len(levels) > LEVELS_MAX:
        errors.append(f"it has {len(levels)} levels; {LEVELS_MAX} are allowed")
    errors += [
        f"a level has more than {LEVEL_BYTES_MAX} bytes: {level[:20]}…"
        for level in levels
        if len(level.encode(errors="replace")) > LEVEL_BYTES_MAX
    ]
    errors += [f"not text that can be written as UTF-8: {level!r}" for level in levels if not _encodes(level)]
    if errors:
        raise ConfigurationError(f"the name of {kind}", errors)
    return levels


def _encodes(level: str) -> bool:
    try:
        level.encode()
    except UnicodeEncodeError:
        return False
    return True
