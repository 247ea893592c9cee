"""Writers that record their attempts and acknowledgements, and a check of the tables against these records.

Every attempt has a key of its own. An append writes `ROWS` rows of that key; a change of properties sets two
properties of that key, so that half of it can be distinguished from the whole. A writer notes an attempt before it
makes it, and the answer after: a writer that is killed between leaves an attempt without an answer.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from endive.catalog.maintenance.candidates import named_by, reachable
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import StorageUnavailableError

ROWS = 3
SCHEMA = Schema(NestedField(1, "key", StringType(), required=False), NestedField(2, "row", LongType(), required=False))
TRIED, ACKNOWLEDGED, REFUSED, UNKNOWN = "tried", "acknowledged", "refused", "unknown"
APPEND, SET = "append", "set"
PROPERTIES_EVERY = 4
"""One attempt in so many changes properties."""

Note = Callable[[str], object]


def rows_of(key: str) -> pa.Table:
    return pa.table({"key": pa.array([key] * ROWS), "row": pa.array(range(ROWS), pa.int64())})


def attempt(table: Table, kind: str, key: str) -> None:
    if kind == APPEND:
        table.append(rows_of(key))
    else:
        with table.transaction() as transaction:
            transaction.set_properties({f"test.{key}": key, f"test.{key}+": key})


def write(catalog: EndiveCatalog, name: str, writer: str, note: Note, attempts: Iterable[int]) -> None:
    """Append to a table and change its properties again and again; note every attempt and every answer.

    A refusal is certain, and so noted; after anything else nobody knows. Other errors are the test's failure.
    """
    table = catalog.load_table(name)
    for number in attempts:
        kind, key = (SET if number % PROPERTIES_EVERY == 0 else APPEND), f"{writer}-{number}"
        note(f"{TRIED} {name} {kind} {key}\n")
        try:
            attempt(table, kind, key)
            answer = ACKNOWLEDGED
        except CommitFailedException:
            answer = REFUSED
        except (CommitStateUnknownException, StorageUnavailableError):
            answer = UNKNOWN
        note(f"{answer} {name} {kind} {key}\n")
        if answer != ACKNOWLEDGED:
            table = catalog.load_table(name)


@dataclass
class Verdict:
    """What is wrong, and how much was tried."""

    answers: dict[str, int]
    missing: list[str] = field(default_factory=list)
    """Acknowledged, and not there as a whole."""
    torn: list[str] = field(default_factory=list)
    """There, but not once and as a whole."""
    refused_but_there: list[str] = field(default_factory=list)
    unknown_to_the_journal: list[str] = field(default_factory=list)
    missing_files: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What the catalog's own check says."""

    @property
    def faults(self) -> list[str]:
        kinds = ("missing", "torn", "refused_but_there", "unknown_to_the_journal", "missing_files", "problems")
        return [f"{kind}: {one}" for kind in kinds for one in getattr(self, kind)]


def judge(catalog: EndiveCatalog, journal: Iterable[str]) -> Verdict:
    """Compare what writers have noted with what is in the catalog."""
    last: dict[tuple[str, str, str], str] = {}
    for line in journal:
        answer, name, kind, key = line.split()
        last[name, kind, key] = answer
    verdict = Verdict(dict(Counter(last.values())))
    for name in sorted({name for name, _, _ in last}):
        table = catalog.load_table(name)
        found = {(APPEND, key): count for key, count in rows_in(table).items()}
        found |= {(SET, key): count for key, count in pairs_in(table).items()}
        tried = {(kind, key): answer for (of, kind, key), answer in last.items() if of == name}
        _compare(verdict, name, tried, found)
        verdict.missing_files += missing_files(table)
    verdict.problems = catalog.kv.check()
    return verdict


def _compare(
    verdict: Verdict, name: str, tried: dict[tuple[str, str], str], found: dict[tuple[str, str], tuple[int, ...]]
) -> None:
    whole = {APPEND: tuple(range(ROWS)), SET: (0, 1)}
    for (kind, key), answer in tried.items():
        there = found.pop((kind, key), ())
        words = f"{name} {kind} {key}: {there}"
        if answer == ACKNOWLEDGED and there != whole[kind]:
            verdict.missing.append(words)
        elif there not in {(), whole[kind]}:
            verdict.torn.append(words)
        elif answer == REFUSED and there:
            verdict.refused_but_there.append(words)
    verdict.unknown_to_the_journal += [f"{name} {kind} {key}" for kind, key in found]


def rows_in(table: Table) -> dict[str, tuple[int, ...]]:
    """Return the rows of every key, sorted: a row that is there twice shows twice."""
    found: dict[str, list[int]] = {}
    for row in table.scan().to_arrow().to_pylist():
        found.setdefault(row["key"], []).append(row["row"])
    return {key: tuple(sorted(rows)) for key, rows in found.items()}


def pairs_in(table: Table) -> dict[str, tuple[int, ...]]:
    """Return which of its two properties every key has."""
    found: dict[str, list[int]] = {}
    for name, value in table.properties.items():
        if name.startswith("test."):
            found.setdefault(value, []).append(int(name.endswith("+")))
    return {key: tuple(sorted(places)) for key, places in found.items()}


def missing_files(table: Table) -> list[str]:
    """Return the files that any snapshot of a local table needs, or that it names, and that are not there."""
    needed = reachable(table.io, table.metadata.snapshots).paths | named_by(table.metadata, table.metadata_location)
    return [path for path in sorted(needed) if not Path(urlsplit(path).path).exists()]
