"""Every property that begins with `endive.`: what it takes, what it means, and what is wrong with one that is given.

Iceberg's properties are an open list, and whoever misspells one is never told. Those under this name are ours alone,
so one that is not in the table below is a mistake, and is refused where it is given: when a catalog is opened, a table
is created, or a property is set. What a table already has is left alone; it may be removed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyiceberg.table.update import SetPropertiesUpdate

from endive.catalog.commit.changes import TableChange
from endive.catalog.commit.committer import ATTEMPTS, ATTEMPTS_DEFAULT
from endive.catalog.commit.metadata_files import BACKGROUND, BEFORE, MODE
from endive.catalog.commit.rebase import MAY_MOVE
from endive.catalog.connection import EXCLUSIVE, SHARED, WRITER
from endive.catalog.model.names import text_of
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
COMMIT_ID = "endive.commit-id"
"""In a snapshot's summary: the caller's id for this commit. A repeat of it is answered as the first time."""
WRITE_ID = "endive.write-id"
"""In a snapshot's summary: which run of a job wrote its files. Tells a commit of one's own from an earlier one."""

BOOLEAN = ("true", "false")


@dataclass(frozen=True, slots=True)
class Setting:
    """A property of Endive's own."""

    name: str
    owners: tuple[Owner, ...]
    """What may have it."""
    default: str
    meaning: str
    values: tuple[str, ...] = ()
    """The words it may be; none if it is a number or any text."""
    least: int | None = None
    """The least whole number it may be; None if it is none."""

    @property
    def takes(self) -> str:
        """What it may be, in words."""
        if self.values:
            return " or ".join(f"`{value}`" for value in self.values)
        return "text" if self.least is None else f"a whole number from {self.least} on"

    def problem(self, value: str) -> str:
        """Return what is wrong with a value; nothing if it is fine."""
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
        "make a catalog where there is none. PyIceberg's users have no other place to say it, so it is on; turn it off "
        "where a mistyped URL should be an error",
        BOOLEAN,
    ),
    Setting(
        WRITER,
        ("catalog",),
        SHARED,
        "`shared`: any number of processes write. `exclusive`: this one does, and a commit is one request instead of "
        "two; [see below](#one-process-that-writes)",
        (SHARED, EXCLUSIVE),
    ),
    Setting(
        MODE,
        ("catalog", "table"),
        BEFORE,
        "when a table's metadata file is written; the table's property comes before the catalog's",
        (BEFORE, BACKGROUND),
    ),
    Setting(
        ATTEMPTS,
        ("table",),
        str(ATTEMPTS_DEFAULT),
        "how many races in a row an append may lose before it fails",
        least=1,
    ),
    Setting(
        COMMIT_ID,
        ("snapshot",),
        "",
        "the caller's id for the commit: a repeat of it is answered as the first time",
    ),
    Setting(
        WRITE_ID,
        ("snapshot",),
        "",
        "which run of a Spark job wrote the snapshot; Endive sets it itself",
    ),
    Setting(
        MAY_MOVE,
        ("snapshot",),
        "true",
        "`false`: an append was decided on the state that it was built on, and is not put on top of another",
        BOOLEAN,
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def faults_of(properties: Mapping[str, str], owner: Owner) -> list[str]:
    """Return what is wrong with properties that are given to a catalog or a table; others than Endive's are fine."""
    ours = {key: str(value) for key, value in properties.items() if key.lower().startswith(PREFIX)}
    return [f"{key}: {problem}" for key, value in ours.items() if (problem := _problem(key, value, owner))]


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
    """Raise `ConfigurationError` with every fault of properties; `source` names where they were given."""
    faults = faults_of(properties, owner)
    if faults:
        raise ConfigurationError(source, faults)


def require_known_in(changes: Sequence[TableChange]) -> None:
    """Raise if a commit sets a property that does not exist, or to what it cannot be."""
    for change in changes:
        for update in change.updates:
            if isinstance(update, SetPropertiesUpdate):
                require_known(update.updates, "table", text_of(change.identifier))
