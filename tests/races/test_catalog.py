"""The explorer on the catalog: two that commit, with a rename and a drop in between.

Every search prints its number of states (`pytest -s`).
"""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

import pytest

from endive.catalog.commit import apply, stored_results
from endive.catalog.commit.prepared import ChangedRows
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.operations import dropped_tables as dropped_rows
from endive.catalog.operations import table_rows
from endive.kv.transaction import Transaction
from endive.protocol.requests import Steps
from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration, explore
from tests.races.catalogs import (
    INVARIANTS,
    RENAMED,
    TABLE,
    catalog_at_rest,
    clearing,
    committed_as_group,
    committed_inside,
    committing_known,
    doing,
    dropped,
    registered,
    renamed,
    repeating,
)

OBJECTS, STATE = catalog_at_rest()
COMMITTERS: dict[str, Program] = {
    "committer a": partial(doing, "a", partial(committed_inside, "a"), STATE),
    "committer b": partial(committing_known, "b", STATE),
}
RENAMER: dict[str, Program] = {"renamer": partial(doing, "rename", renamed, STATE)}
DROPPER: dict[str, Program] = {"dropper": partial(doing, "drop t", partial(dropped, TABLE), STATE)}
LATE_DROPPER: dict[str, Program] = {"late dropper": partial(doing, "drop u", partial(dropped, RENAMED), STATE)}


COMING_BACK: dict[str, Program] = {
    "committer a": COMMITTERS["committer a"],
    **DROPPER,
    "clearer": partial(clearing, STATE),
    "registrar": partial(doing, "register", registered, STATE),
}
"""The table is dropped and comes back, with the uuid it had, while a process clears the rows of its former life."""


def searched(programs: Mapping[str, Program], bounds: Bounds) -> Exploration:
    invariants = {"rows": INVARIANTS["rows"]} if "registrar" in programs else INVARIANTS
    found = explore(programs, invariants, bounds, OBJECTS)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result
    return found


GROUP: dict[str, Program] = {
    "committer a": COMMITTERS["committer a"],
    "group": partial(committing_known, "bc", STATE, committed_as_group),
}
"""A group of two changes, and another process."""


Case = tuple[dict[str, Program], Bounds]
EXHAUSTED: dict[str, Case] = {
    "two committers, a lost reply": (COMMITTERS, Bounds(lost_replies=1)),
    "one that repeats its commit, and another": (
        {"repeating": partial(repeating, "b", STATE), "committer a": COMMITTERS["committer a"]},
        Bounds(lost_replies=1),
    ),
    "two committers and a rename": ({**COMMITTERS, **RENAMER}, Bounds()),
    "two committers and a drop": ({**COMMITTERS, **DROPPER}, Bounds()),
    "a group and a committer, a lost reply": (GROUP, Bounds(lost_replies=1)),
    "a group, a committer and a rename": ({**GROUP, **RENAMER}, Bounds()),
    "a group, a committer and a drop; two preemptions": ({**GROUP, **DROPPER}, Bounds(preemptions=2)),
    "two committers, a rename and a drop; two preemptions": (
        {**COMMITTERS, **RENAMER, **LATE_DROPPER},
        Bounds(preemptions=2),
    ),
    "a commit, a drop, its rows cleared, the table back; two preemptions": (COMING_BACK, Bounds(preemptions=2)),
}
LONG: dict[str, Case] = {
    "two committers, a rename and a drop, a lost reply; two preemptions": (
        {**COMMITTERS, **RENAMER, **LATE_DROPPER},
        Bounds(lost_replies=1, preemptions=2),
    ),
    "two committers, a rename and a drop": ({**COMMITTERS, **RENAMER, **LATE_DROPPER}, Bounds(lost_replies=1)),
}


@pytest.mark.parametrize("case", EXHAUSTED.values(), ids=EXHAUSTED.keys())
def test_nothing_goes_wrong(case: Case) -> None:
    assert searched(*case).violation is None


@pytest.mark.campaign
@pytest.mark.parametrize("case", LONG.values(), ids=LONG.keys())
def test_nothing_goes_wrong_in_long_searches(case: Case) -> None:
    assert searched(*case).violation is None


def test_a_commit_that_does_not_check_the_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits_by_name(rows: ChangedRows, record: TableRecord | None) -> bool:
        return (record is None) == (rows.base_uuid is None)

    monkeypatch.setattr(ChangedRows, "fits", fits_by_name)

    assert searched(COMMITTERS, Bounds(preemptions=2)).violation is not None


def test_a_group_that_does_not_check_the_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangedRows, "fits", lambda *_: True)

    assert searched(GROUP, Bounds(preemptions=2)).violation is not None


def test_a_commit_without_a_stored_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(*_: object) -> Steps[None]:
        yield from ()

    for module in (apply, stored_results):  # of groups, and of other commits
        monkeypatch.setattr(module, "stored_result", forgets)

    assert searched({"repeating": partial(repeating, "b", STATE)}, Bounds()).violation is not None


def test_a_clean_up_that_does_not_check_the_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def clears_anyway(tx: Transaction, _: UUID, keys: tuple[bytes, ...]) -> Steps[bool]:
        yield from ()
        for key in keys:
            tx.delete(key)
        return True

    monkeypatch.setattr(dropped_rows, "_clear_batch", clears_anyway)

    assert searched(COMING_BACK, Bounds(preemptions=2)).violation is not None


def test_a_registration_that_does_not_check_the_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_minds(*_: object) -> Steps[None]:
        yield from ()

    monkeypatch.setattr(table_rows, "require_cleared", never_minds)

    assert searched(COMING_BACK, Bounds(preemptions=2)).violation is not None
