"""Commits to one table that processes announce: one of them composes the appends of all, and commits them together."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from endive.catalog import KVCatalog
from endive.catalog.commit.announced import OLD_ENTRIES, AnnouncedCommits, topic_of_table
from endive.catalog.commit.announced_results import NAME as PROCEDURE
from endive.catalog.commit.announced_results import VERSION, record_or_error, result_of_error
from endive.catalog.commit.publisher import Publisher
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError, NotInCatalogError, OutcomeUnknownError, ProcedureFailedError
from endive.kv import Store, serving
from endive.kv.log.helping import result_of
from endive.kv.log.intentions import DONE, FAILED, PREFIX, REFUSED, Intention
from endive.kv.procedures import Call
from endive.kv.sst.reading import NoCache
from endive.objects import MemoryStore
from tests.catalog.commits.interrupted import rows_of
from tests.catalog.tables import NAME, NUMBERS, numbers
from tests.store.functions import QUIET
from tests.store.test_helping import requests_of

TOPIC = topic_of_table(NAME)
MODES = ("before-acknowledgement", "background")
LATER_MS = 4_000_000_000_000
"""Every file is older."""


@pytest.fixture(params=MODES)
def catalogs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[EndiveCatalog]]:
    """Three processes, each with its own store on the same objects."""
    objects = MemoryStore()
    properties = {"endive.metadata-json": request.param}
    stores = [Store(objects, "shared", QUIET) for _ in range(3)]
    opened = [KVCatalog(store, f"file://{tmp_path}/warehouse", properties, create=True) for store in stores]
    opened[0].create_namespace("db")
    yield [EndiveCatalog.on(one) for one in opened]
    for kv, store in zip(opened, stores, strict=True):
        kv.close()
        store.close()


def store_of(catalog: EndiveCatalog) -> Store:
    store = catalog.kv.store
    assert isinstance(store, Store)
    return store


def committer_of(catalog: EndiveCatalog) -> AnnouncedCommits:
    announced = catalog.kv._committer._loop._announced
    assert announced is not None
    return announced


def meet_company(*catalogs: EndiveCatalog) -> None:
    """Let processes expect others at the table."""
    for one in catalogs:
        one.kv._committer._loop.queues.of(NAME).met_company()


def dying(catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process die whenever it has announced a commit."""

    def die(*_: Any) -> None:
        raise OutcomeUnknownError("the process is dead")

    meet_company(catalog)
    monkeypatch.setattr(committer_of(catalog), "_see_through", die)


def append_and_die(catalog: EndiveCatalog, number: int) -> None:
    with pytest.raises(CommitStateUnknownException):
        catalog.load_table(NAME).append(numbers(number))


def test_appends_of_processes_to_one_table_are_all_there(catalogs: list[EndiveCatalog]) -> None:
    catalogs[0].create_table(NAME, NUMBERS)
    meet_company(*catalogs)
    errors: list[BaseException] = []

    def append(place: int) -> None:
        try:
            table = catalogs[place].load_table(NAME)
            for number in range(4):
                table.append(numbers(100 * place + number))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [Thread(target=append, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    expected = sorted(100 * place + number for place in range(3) for number in range(4))
    assert rows_of(catalogs[1].load_table(NAME)) == expected
    assert catalogs[2].kv.check() == []
    assert sum(store_of(one).stats()["announced_batches"] for one in catalogs) >= 3


def test_appends_of_dead_processes_are_committed_in_one_entry_with_the_next(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Publisher, "remind", lambda *_, **__: None)  # it has entries of its own
    catalogs[0].create_table(NAME, NUMBERS).append(numbers(1))
    dying(catalogs[0], monkeypatch)
    append_and_die(catalogs[0], 2)
    append_and_die(catalogs[0], 3)
    table = catalogs[1].load_table(NAME)
    before = store_of(catalogs[1]).wal_end
    meet_company(catalogs[1])

    table.append(numbers(4))

    assert store_of(catalogs[1]).wal_end == before + 1
    assert store_of(catalogs[1]).stats()["carried_for_others"] == 2
    found = catalogs[2].load_table(NAME)
    assert rows_of(found) == [1, 2, 3, 4]
    assert [one.sequence_number for one in found.metadata.snapshots] == [1, 2, 3, 4]
    assert catalogs[2].kv.check() == []


def test_files_of_an_announced_append_are_no_orphans(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs[0].create_table(NAME, NUMBERS).append(numbers(1))
    dying(catalogs[0], monkeypatch)
    append_and_die(catalogs[0], 2)

    catalogs[1].kv.remove_orphan_files(NAME, LATER_MS)

    assert rows_of(catalogs[1].load_table(NAME)) == [1, 2]
    assert catalogs[1].kv.check() == []


def test_a_commit_that_is_announced_twice_under_its_id_is_one_commit(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs[0].create_table(NAME, NUMBERS).append(numbers(1))
    exchange = store_of(catalogs[0]).exchange
    dying(catalogs[0], monkeypatch)
    append_and_die(catalogs[0], 2)
    exchange.announce(TOPIC, next(iter(exchange._known.values())).calls)
    assert store_of(catalogs[1]).settle() == ()

    assert rows_of(catalogs[1].load_table(NAME)) == [1, 2]
    assert catalogs[1].kv.check() == []


def test_a_conflict_is_decided_by_name(catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch) -> None:
    mode = {"endive.metadata-json": "before-acknowledgement"}  # in the background no files are needed
    catalogs[0].create_table(NAME, NUMBERS, properties={"a": "1", **mode})
    exchange = store_of(catalogs[0]).exchange
    dying(catalogs[0], monkeypatch)
    with pytest.raises(CommitStateUnknownException), catalogs[0].load_table(NAME).transaction() as transaction:
        transaction.remove_properties("a")
    own = next(iter(exchange._known.values()))
    monkeypatch.setattr(committer_of(catalogs[1]), "has_company", lambda _: False)  # it has not seen the intention
    catalogs[1].load_table(NAME).transaction().remove_properties("a").commit_transaction()
    assert store_of(catalogs[1]).settle() == ()

    exchange.refresh()
    decided = exchange.result(own)
    assert decided is not None
    error = record_or_error(decided.results[0])
    assert isinstance(error, CommitConflictError)
    assert "already removed" in str(error)


def test_an_intention_that_cannot_be_decoded_is_set_aside(catalogs: list[EndiveCatalog]) -> None:
    catalogs[0].create_table(NAME, NUMBERS)
    exchange = store_of(catalogs[0]).exchange
    broken = exchange.announce(TOPIC, (Call(PROCEDURE, VERSION, b"{}"),))
    meet_company(catalogs[1])

    catalogs[1].load_table(NAME).append(numbers(1))

    exchange.refresh()
    decided = exchange.result(broken)
    assert decided is not None
    assert decided.results[0].kind == FAILED
    assert b"cannot be decoded" in decided.results[0].body
    assert rows_of(catalogs[2].load_table(NAME)) == [1]


def test_a_commit_to_a_table_that_was_dropped_is_decided(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs[0].create_table(NAME, NUMBERS)
    exchange = store_of(catalogs[0]).exchange
    dying(catalogs[0], monkeypatch)
    append_and_die(catalogs[0], 1)
    names = exchange.pending(TOPIC) or tuple(exchange._known)
    catalogs[1].drop_table(NAME)
    assert store_of(catalogs[1]).settle() == ()

    exchange.refresh()
    decided = exchange.result(Intention(names[0], ()))
    assert decided is not None
    assert decided.results[0].kind == REFUSED
    assert isinstance(record_or_error(decided.results[0]), NotInCatalogError)


def test_a_lone_process_announces_nothing(catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "remind", lambda *_, **__: None)  # it has entries of its own
    table = catalogs[0].create_table(NAME, NUMBERS)
    for number in range(3):
        table.append(numbers(number))

    objects = store_of(catalogs[0]).driver.objects
    assert requests_of(store_of(catalogs[0]), lambda: table.append(numbers(9))) == {"PutIfAbsent": 1, "List": 1}
    assert store_of(catalogs[0]).stats()["announced_batches"] == 0
    assert not list(objects.list(PREFIX))


def test_a_lone_process_commits_what_a_dead_one_has_announced(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs[0].create_table(NAME, NUMBERS).append(numbers(1))
    dying(catalogs[0], monkeypatch)
    append_and_die(catalogs[0], 2)
    table = catalogs[1].load_table(NAME)  # its listing shows the intention

    table.append(numbers(3))

    assert rows_of(catalogs[2].load_table(NAME)) == [1, 2, 3]
    assert store_of(catalogs[1]).stats()["carried_for_others"] == 1
    assert catalogs[2].kv.check() == []


def test_an_intention_is_made_at_the_newest_position_though_its_owner_was_idle(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "OUTCOMES_KEPT", 5)
    idle = catalogs[0].create_table(NAME, NUMBERS)
    dying(catalogs[2], monkeypatch)
    with pytest.raises(CommitStateUnknownException):
        catalogs[2].load_table(NAME).append(numbers(7))
    store_of(catalogs[0]).refresh()
    for number in range(30):
        store_of(catalogs[1]).put(b"key", b"%d" % number)
    for _ in range(2):
        store_of(catalogs[1]).refresh()
        store_of(catalogs[1]).collect_intentions()

    idle.append(numbers(1))  # it has seen the intention of the dead one, and nothing since

    assert rows_of(catalogs[1].load_table(NAME)) == [1]


def test_a_commit_of_a_newer_version_is_left_and_tried_once(catalogs: list[EndiveCatalog]) -> None:
    catalogs[0].create_table(NAME, NUMBERS)
    exchange = store_of(catalogs[0]).exchange
    newer = exchange.announce(TOPIC, (Call(PROCEDURE, VERSION + 1, b"{}"),))
    meet_company(catalogs[1])
    catalogs[1].load_table(NAME).append(numbers(1))
    announced = store_of(catalogs[1]).stats()["announced_batches"]
    catalogs[1].kv._committer._loop.queues.of(NAME)._company_s = -inf  # it has met no other process for a while

    catalogs[1].load_table(NAME).append(numbers(2))

    assert rows_of(catalogs[2].load_table(NAME)) == [1, 2]
    assert store_of(catalogs[1]).stats()["announced_batches"] == announced
    assert store_of(catalogs[1]).settle() == (newer.name,)
    exchange.refresh()
    assert exchange.result(newer) is None


def test_with_many_pending_commits_no_other_one_is_announced(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("endive.kv.exchange.PENDING_MAX", 2)
    catalogs[0].create_table(NAME, NUMBERS).append(numbers(1))
    exchange = store_of(catalogs[0]).exchange
    dying(catalogs[0], monkeypatch)
    append_and_die(catalogs[0], 2)
    exchange.announce(TOPIC, next(iter(exchange._known.values())).calls)
    exchange.announce("f" * 16, (Call(PROCEDURE, VERSION + 1, b"{}"),))
    meet_company(catalogs[1])

    catalogs[1].load_table(NAME).append(numbers(3))

    assert rows_of(catalogs[2].load_table(NAME)) == [1, 2, 3]
    assert store_of(catalogs[1]).stats()["announced_batches"] == 0
    assert store_of(catalogs[1]).stats()["carried_for_others"] == 2
    assert catalogs[2].kv.check() == []


def test_errors_survive_their_record() -> None:
    conflict = CommitConflictError("db.t", "branch main has moved")
    assert str(record_or_error(result_of_error(conflict))) == str(conflict)
    other = record_or_error(result_of_error(OSError("no space left")))
    assert isinstance(other, ProcedureFailedError)
    assert "no space left" in str(other)


def test_an_old_intention_that_cannot_be_carried_out_is_set_aside(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs[0].create_table(NAME, NUMBERS).append(numbers(1))
    exchange = store_of(catalogs[0]).exchange
    dying(catalogs[0], monkeypatch)
    append_and_die(catalogs[0], 2)
    name = next(iter(exchange._known))
    committer = committer_of(catalogs[1])
    build = committer._chains.build

    def failing(*args: Any) -> Any:
        chain = build(*args)
        for link in chain.links:
            link.error = OSError("the disk is on fire")
        return chain

    monkeypatch.setattr(committer._chains, "build", failing)
    store_of(catalogs[1]).refresh()
    committer.carry_out(TOPIC)
    assert exchange.result(Intention(name, ())) is None

    monkeypatch.setattr(store_of(catalogs[1]).exchange, "entries_since", lambda _: OLD_ENTRIES + 1)
    committer.carry_out(TOPIC)
    exchange.refresh()
    decided = store_of(catalogs[0]).driver.run(
        result_of(Intention(name, ()), store_of(catalogs[0])._writer.state, NoCache())
    )
    assert decided is not None
    assert b"on fire" in decided.results[0].body


@pytest.mark.parametrize("mode", MODES)
def test_an_exclusive_catalog_commits_for_processes_that_do_not_know_it(mode: str, tmp_path: Path) -> None:
    objects, properties = MemoryStore(), {"endive.metadata-json": mode}
    serving = replace(QUIET, reopen=True, max_parallel_writes=4, poll_interval_ms=5)
    errors: list[BaseException] = []

    def opened(store: Store) -> EndiveCatalog:
        return EndiveCatalog.on(KVCatalog(store, f"file://{tmp_path}/warehouse", properties, create=True))

    def append(catalog: EndiveCatalog, first: int) -> None:
        try:
            table = catalog.load_table(NAME)
            for number in range(3):
                table.append(numbers(first + number))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    with Store(objects, options=serving) as owner:
        server = opened(owner)
        server.create_namespace("db")
        server.create_table(NAME, NUMBERS)
        epoch = owner.epoch
        guests = [Store(objects, "shared", replace(QUIET, await_exclusive=True)) for _ in range(2)]
        catalogs = [opened(store) for store in guests]
        threads = [Thread(target=append, args=(one, 100 * place)) for place, one in enumerate(catalogs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert not errors
        assert owner.epoch == epoch
        owner.refresh()
        assert rows_of(server.load_table(NAME)) == [0, 1, 2, 100, 101, 102]
        assert server.kv.check() == []
        for catalog, store in zip(catalogs, guests, strict=True):
            catalog.kv.close()
            store.close()
        server.kv.close()


# A table that is unregistered and registered again begins with version 0 again: the version alone tells no state.


def registered_again(catalog: EndiveCatalog, location: str) -> None:
    """Unregister the table, and register what a metadata file shows."""
    catalog.drop_table(NAME)
    catalog.register_table(NAME, location)


def test_a_conflict_with_a_table_that_was_registered_again_is_not_decided(
    catalogs: list[EndiveCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader knows version 0 without the property; the table is at version 0 with it."""
    mode = {"endive.metadata-json": "before-acknowledgement"}
    with_it = catalogs[0].create_table(NAME, NUMBERS, properties={"a": "1", **mode}).metadata_location
    old = catalogs[0].load_table(NAME)
    catalogs[1].load_table(NAME).transaction().remove_properties("a").commit_transaction()
    registered_again(catalogs[1], catalogs[1].load_table(NAME).metadata_location)
    dying(catalogs[0], monkeypatch)
    with pytest.raises(CommitStateUnknownException), old.transaction() as transaction:
        transaction.remove_properties("a")
    own = next(iter(store_of(catalogs[0]).exchange._known.values()))
    store_of(catalogs[1]).refresh()
    registered_again(catalogs[2], with_it)

    committer_of(catalogs[1]).carry_out(TOPIC)

    store_of(catalogs[0]).refresh()
    decided = store_of(catalogs[0]).exchange.result(own)
    assert decided is not None
    assert [one.kind for one in decided.results] == [DONE]
    assert "a" not in catalogs[2].load_table(NAME).properties


def test_a_metadata_file_shows_no_past_of_a_table_before_it_was_registered_again(
    catalogs: list[EndiveCatalog],
) -> None:
    """This process has committed version 1 before, and knows the past of another version 1."""
    mode = {"endive.metadata-json": "before-acknowledgement"}
    table = catalogs[0].create_table(NAME, NUMBERS, properties=mode)
    empty = table.metadata_location
    table.append(numbers(1))
    registered_again(catalogs[1], empty)
    catalogs[1].load_table(NAME).append(numbers(7))

    catalogs[0].load_table(NAME).append(numbers(3))

    loaded = catalogs[2].load_table(NAME)
    shown = catalogs[2].kv.files.read(loaded.metadata_location)
    assert [one.snapshot_id for one in shown.snapshots] == [one.snapshot_id for one in loaded.metadata.snapshots]
    assert rows_of(loaded) == [3, 7]
    assert catalogs[2].kv.check() == []
