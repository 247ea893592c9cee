"""The options of the data source, checked, and the catalog that they name.

Spark passes options as text, in lower case. All errors are reported at once, including misspelt options: Spark would
ignore them silently, and a misspelt `snapshot-id` would read another state of the table.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Literal

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from endive.errors import ConfigurationError

CATALOG = "endive.catalog.pyiceberg.EndiveCatalog"
EXISTING_ONLY = {"endive.create": "false"}

PREFIX = "catalog."
"""Options that begin so are properties of the catalog: `catalog.warehouse`, `catalog.s3.endpoint`."""

READ = (
    "columns", "filter", "push-filters", "snapshot-id", "as-of-timestamp", "branch", "tag", "stream-from",
    "skip-overwrites",
)  # fmt: skip
WRITE = ("branch", "overwrite-mode", "overwrite-filter", "commit-id", "validate-from-snapshot-id")
KNOWN = frozenset({"catalog", "path", "table", *READ, *WRITE})

Mode = Literal["append", "overwrite", "filter", "dynamic"]
"""Add; replace everything; replace what matches a filter; replace the partitions that are written."""


@dataclass(frozen=True)
class Place:
    """A table's catalog and name."""

    properties: Mapping[str, str]
    identifier: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.identifier)

    @contextmanager
    def table(self) -> Iterator[Table]:
        """Provide the current table, in the planning and the committing process; tasks never open the catalog."""
        with open_catalog(self.properties) as catalog:
            yield catalog.load_table(self.identifier)


@dataclass(frozen=True)
class ReadOptions:
    """Which rows and columns to read. At most one of snapshot, time, branch and tag."""

    columns: tuple[str, ...] | None = None
    """None: all of them."""
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    """Rows that do not match are left out, and files without matching rows are not opened."""
    push_filters: bool = False
    """Whether to push the filters of the query as well. See `PushingReader` for the restriction."""
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    """Unix time in milliseconds: the snapshot that was current then."""
    ref: str | None = None
    """A branch or a tag. None: what is current."""
    stream_from: str = "table"
    """Where a stream begins: with the whole `table` as it is, with what comes from `now` on, or after a snapshot id."""
    skip_overwrites: bool = False
    """Whether a stream skips snapshots that delete or overwrite, instead of ending with an error."""


@dataclass(frozen=True)
class WriteOptions:
    """The effect of a write on the table."""

    mode: Mode = "append"
    branch: str = MAIN_BRANCH
    overwrite_filter: BooleanExpression | None = None
    commit_id: str | None = None
    """Idempotency key of the commit. None: every write is a new commit."""
    validate_from: int | None = None
    """The snapshot that must still be the newest. None: concurrent commits are allowed."""


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    """Open a catalog: Endive's own at `uri`, or another of PyIceberg's if `type` or `py-catalog-impl` says so.

    `name` is what it is called; PyIceberg's SQL catalogs keep tables apart by it.
    """
    # A misspelt URL should be an error, not create a catalog.
    own = {} if {"type", "py-catalog-impl"} & set(properties) else {"py-catalog-impl": CATALOG, **EXISTING_ONLY}
    given = {key: value for key, value in properties.items() if key != "name"}
    return load_catalog(properties.get("name", "endive"), **{**own, **given})


def place_of(options: Mapping[str, str]) -> Place:
    """Return the table that the options name."""
    errors = [*_misspelt(options)]
    name = options.get("table") or options.get("path") or ""
    if not name:
        errors.append('no table is named: .load("db.table"), or the option "table"')
    properties = {key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)}
    if url := options.get("catalog"):
        properties.setdefault("uri", url)
    elif not properties:
        errors.append('the option "catalog" is missing: the catalog\'s URL, such as s3://bucket/path')
    identifier = _identifier(name, errors)
    _raise(errors)
    return Place(properties, identifier)


def _identifier(name: str, errors: list[str]) -> tuple[str, ...]:
    if not name.startswith("["):
        parts = tuple(name.split("."))
    else:
        parts = _names(name, errors)
        if not parts:
            return ()
    if name and (len(parts) < 2 or not all(parts)):
        errors.append(f"{name!r} is not namespace.table")
    return parts


def _names(text: str, errors: list[str]) -> tuple[str, ...]:
    try:
        return tuple(str(part) for part in json.loads(text))
    except ValueError:
        errors.append(f'{text!r} is not a JSON list of names such as ["db", "odd.name"]')
        return ()


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read."""
    errors: list[str] = []
    chosen = [key for key in ("snapshot-id", "as-of-timestamp", "branch", "tag") if key in options]
    if len(chosen) > 1:
        errors.append(f"{' and '.join(chosen)} contradict each other; give one of them")
    start = options.get("stream-from", "table")
    if start not in ("table", "now") and not start.isdigit():
        errors.append(f"stream-from {start!r} is neither `table`, `now` nor a snapshot id")
    read = ReadOptions(
        columns=_columns(options.get("columns"), errors),
        row_filter=_condition(options, "filter", errors) or AlwaysTrue(),
        push_filters=_flag(options, "push-filters", errors),
        snapshot_id=_integer(options, "snapshot-id", errors),
        as_of_ms=_moment_ms(options.get("as-of-timestamp"), errors),
        ref=options.get("branch") or options.get("tag"),
        stream_from=start,
        skip_overwrites=_flag(options, "skip-overwrites", errors),
    )
    _raise(errors)
    return read


def write_options(options: Mapping[str, str], overwrite: bool) -> WriteOptions:
    """Return the options of a write; `overwrite` is Spark's mode."""
    errors: list[str] = []
    asked = options.get("overwrite-mode", "static")
    expression = _condition(options, "overwrite-filter", errors)
    if asked not in ("static", "dynamic"):
        errors.append(f"overwrite-mode {asked!r} is neither `static` nor `dynamic`")
    if "overwrite-filter" in options and asked == "dynamic":
        errors.append("overwrite-filter and overwrite-mode=dynamic contradict each other; give one of them")
    if not overwrite and ("overwrite-mode" in options or "overwrite-filter" in options):
        errors.append('overwrite-mode and overwrite-filter need .mode("overwrite")')
    mode: Mode = "filter" if expression is not None else "dynamic" if asked == "dynamic" else "overwrite"
    write = WriteOptions(
        mode=mode if overwrite else "append",
        branch=options.get("branch", MAIN_BRANCH),
        overwrite_filter=expression,
        commit_id=options.get("commit-id"),
        validate_from=_integer(options, "validate-from-snapshot-id", errors),
    )
    _raise(errors)
    return write


def _misspelt(options: Mapping[str, str]) -> Iterable[str]:
    for key in options:
        if key not in KNOWN and not key.startswith(PREFIX):
            near = get_close_matches(key.replace("_", "-"), KNOWN, 1, 0.8)
            if near:  # other options are Spark's, such as a stream's checkpointLocation
                yield f"there is no option {key!r}; did you mean {near[0]!r}?"


def _columns(text: str | None, errors: list[str]) -> tuple[str, ...] | None:
    if text is None:
        return None
    if text.startswith("["):
        return _names(text, errors)
    return tuple(name.strip() for name in text.split(","))


def _condition(options: Mapping[str, str], key: str, errors: list[str]) -> BooleanExpression | None:
    if key not in options:
        return None
    try:
        return parse(options[key])
    except Exception as error:  # noqa: BLE001 - the parser has no error of its own
        errors.append(f"{key} {options[key]!r} cannot be read: {error}")
        return None


def _integer(options: Mapping[str, str], key: str, errors: list[str]) -> int | None:
    if key not in options:
        return None
    try:
        return int(options[key])
    except ValueError:
        errors.append(f"{key} {options[key]!r} is not a number")
        return None


def _moment_ms(text: str | None, errors: list[str]) -> int | None:
    """Return milliseconds, from milliseconds or from a time with its zone, such as 2026-11-16T04:00:00+00:00."""
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        errors.append(f"as-of-timestamp {text!r} is neither Unix milliseconds nor an ISO time with its zone")
        return None
    return int(moment.timestamp() * 1000)


def _flag(options: Mapping[str, str], key: str, errors: list[str]) -> bool:
    text = options.get(key, "false").lower()
    if text not in ("true", "false"):
        errors.append(f"{key} {text!r} is neither true nor false")
    return text == "true"


def _raise(errors: list[str]) -> None:
    if errors:
        raise ConfigurationError("options of the data source endive", errors)
