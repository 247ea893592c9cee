"""The explorer on the catalog: two that commit, with a rename and a drop in between.

Every search prints its number of states (`pytest -s`).
"""

from collections.abc import Mapping
from functools import partial

import pytest

from endive.catalog import commit
from endive.catalog.commit import Staged
from endive.catalog.records import TableRecord
from endive.drivers.automaton import Program
from endive.drivers.interleaved import Bounds, Exploration, explore
from endive.protocol.requests import Steps
from tests.races.catalogs import (
    INVARIANTS,
    RENAMED,
    TABLE,
    catalog_at_rest,
    committed_inside,
    committing_known,
    doing,
    dropped,
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


def searched(programs: Mapping[str, Program], bounds: Bounds) -> Exploration:
    found = explore(programs, INVARIANTS, bounds, OBJECTS)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result
    return found


Case = tuple[dict[str, Program], Bounds]
EXHAUSTED: dict[str, Case] = {
    "two committers, a lost reply": (COMMITTERS, Bounds(lost_replies=1)),
    "one that repeats its commit, and another": (
        {"repeating": partial(repeating, "b", STATE), "committer a": COMMITTERS["committer a"]},
        Bounds(lost_replies=1),
    ),
    "two committers and a rename": ({**COMMITTERS, **RENAMER}, Bounds()),
    "two committers and a drop": ({**COMMITTERS, **DROPPER}, Bounds()),
    "two committers, a rename and a drop; two preemptions": (
        {**COMMITTERS, **RENAMER, **LATE_DROPPER},
        Bounds(preemptions=2),
    ),
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


def test_a_commit_that_does_not_look_at_the_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits_by_name(staged: Staged, record: TableRecord | None) -> bool:
        return (record is None) == (staged.base_uuid is None)

    monkeypatch.setattr(commit, "_still_fits", fits_by_name)

    assert searched(COMMITTERS, Bounds(preemptions=2)).violation is not None


def test_a_commit_that_is_not_remembered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(*_: object) -> Steps[None]:
        yield from ()

    monkeypatch.setattr(commit, "_answer_of", forgets)

    assert searched({"repeating": partial(repeating, "b", STATE)}, Bounds()).violation is not None
