"""Every property that begins with `endive.`: its values, its meaning, and the validation of given properties.

Iceberg's properties are an open list, so a misspelt one has no effect and no message. Names under `endive.` are
reserved for Endive: a property that is not in the table below is refused where it is given, when a catalog is opened, a
table is created, or a property is set. A table that already has such a property keeps it; it can be removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyiceberg.io

from endive.errors import ConfigurationError
from endive.wording import nearest

PREFIX = "endive."
Owner = Literal["catalog", "table", "snapshot"]
OWNERS: Mapping[Owner, str] = {
    "catalog": "given when a catalog is opened",
    "table": "a table's",
    "snapshot": "of a snapshot's summary",
}

CREATE = "endive.create"
WRITER = "endive.writer"
"""Whether other processes may write to the catalog."""
SHARED, EXCLUSIVE = "shared", "exclusive"
RECORDS = "endive.records"
"""URL of the record store, for object stores without conditional writes."""
AT = "endive.at"
"""Name of the checkpoint that a catalog is opened at, read-only."""
METADATA_JSON = "endive.metadata-json"
"""When the metadata file of a table is written; the table's property overrides the catalog's."""
BEFORE, BACKGROUND = "before-acknowledgement", "background"
ATTEMPTS = "endive.commit.attempts"
"""How many times a commit that loses races is tried before it fails."""
ATTEMPTS_DEFAULT = 100
COMMIT_ID = "endive.commit-id"
"""In a snapshot's summary: the client's idempotency key of the commit."""
WRITE_ID = "endive.write-id"
"""In a snapshot's summary: the run of a job that wrote the files, to tell its commit from one of an earlier run."""
REBASE = "endive.rebase"
"""In a snapshot's summary: `false` if the append must not be rebased onto another snapshot."""

BOOLEAN = ("true", "false")
STORAGE_PREFIXES = ("s3.", "gcs.", "adls.")
STORAGE_PROPERTIES = sorted(
    value for value in vars(pyiceberg.io).values() if isinstance(value, str) and value.startswith(STORAGE_PREFIXES)
)
"""PyIceberg's properties for access to object storage."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A property of Endive."""

    name: str
    owners: tuple[Owner, ...]
    """Where the property may be set."""
    default: str
    meaning: str
    values: tuple[str, ...] = ()
    """The allowed values; empty for numbers and text."""
    least: int | None = None
    """The smallest allowed number; None for properties that are not numbers."""

    @property
    def takes(self) -> str:
        """The allowed values, in words."""
        if self.values:
            return " or ".join(f"`{value}`" for value in self.values)
        return "text" if self.least is None else f"a whole number from {self.least} on"

    def problem(self, value: str) -> str:
        """Return the error in a value; an empty text if it is valid."""
        if self.values:
            given = value.lower() if self.values == BOOLEAN else value
            return "" if given in self.values else f"{value!r} is neither {' nor '.join(map(repr, self.values))}"
        is_number = value.isascii() and value.isdigit()
        if self.least is not None and not (is_number and int(value) >= self.least):
            return f"{value!r} is not {self.takes}"
        return ""


SETTINGS = (
    Setting(
        CREATE,
        ("catalog",),
        "true",
        "create the catalog if it does not exist. On by default, since `load_catalog` has no other way to ask for it; "
        "turn it off where a mistyped URL should be an error",
        BOOLEAN,
    ),
    Setting(
        WRITER,
        ("catalog",),
        SHARED,
        "`shared`: any number of processes write. `exclusive`: only this process writes, and a commit is one request "
        "instead of two; [see below](#an-exclusive-writer)",
        (SHARED, EXCLUSIVE),
    ),
    Setting(
        RECORDS,
        ("catalog",),
        "",
        "for object stores without conditional writes: the URL of the "
        "[record store](store.md#object-stores-without-conditional-writes) that provides them, `sqlite:///file`, "
        "`postgresql://…`, `mysql://…` or `dynamodb://table`; a catalog keeps its record store for good",
    ),
    Setting(
        METADATA_JSON,
        ("catalog", "table"),
        BEFORE,
        "when a table's metadata file is written; the table's property overrides the catalog's",
        (BEFORE, BACKGROUND),
    ),
    Setting(
        AT,
        ("catalog",),
        "",
        "opens the catalog as it was at this [checkpoint](#the-whole-catalog-through-time), read-only",
    ),
    Setting(
        ATTEMPTS,
        ("table",),
        str(ATTEMPTS_DEFAULT),
        "how many races in a row a commit may lose before it fails",
        least=1,
    ),
    Setting(COMMIT_ID, ("snapshot",), "", "idempotency key of the commit: a retry with it returns the original result"),
    Setting(WRITE_ID, ("snapshot",), "", "the run of a Spark job that wrote the snapshot; set by Endive"),
    Setting(REBASE, ("snapshot",), "true", "`false`: the append is not rebased when its branch has moved", BOOLEAN),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def errors_in(properties: Mapping[str, str], owner: Owner) -> list[str]:
    """Return the errors in properties that are given to a catalog or a table."""
    ours = {key: str(value) for key, value in properties.items() if key[:7].lower() == PREFIX}
    found = [f"{key}: {problem}" for key, value in ours.items() if (problem := _problem(key, value, owner))]
    return found + (_misspelt_storage_properties(properties) if owner == "catalog" else [])


def _misspelt_storage_properties(properties: Mapping[str, str]) -> list[str]:
    """Return the storage properties that are nearly one of PyIceberg's: a typing error, which would have no effect.

    Other unknown names are accepted, since engines in other languages have storage properties of their own.
    """
    given = [key for key in properties if key.startswith(STORAGE_PREFIXES) and key not in STORAGE_PROPERTIES]
    meant = {key: nearest(key, STORAGE_PROPERTIES, cutoff=0.85) for key in given}
    return [f"{key}: no such property; did you mean {name!r}?" for key, name in meant.items() if name is not None]


def _problem(key: str, value: str, owner: Owner) -> str:
    known = [setting.name for setting in SETTINGS if owner in setting.owners]
    if key in known:
        return BY_NAME[key].problem(value)
    if key in BY_NAME:
        return f"this property is {_places(key)}, not {OWNERS[owner]}"
    meant = nearest(key, known) or nearest(key, BY_NAME)
    if meant is None:
        return f"no such property; known here: {', '.join(known)}"
    elsewhere = "" if meant in known else f" But that is {_places(meant)}"
    return f"no such property; did you mean {meant!r}?{elsewhere}"


def _places(name: str) -> str:
    return " or ".join(OWNERS[one] for one in BY_NAME[name].owners)


def require_known(properties: Mapping[str, str], owner: Owner, source: str) -> None:
    """Raise `ConfigurationError` with every error in properties; `source` names where they were given."""
    errors = errors_in(properties, owner)
    if errors:
        raise ConfigurationError(source, errors)
