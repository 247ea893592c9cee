"""A store and the record store that decides its creates belong together: mismatched openings are refused."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from endive.errors import ConfigurationError, EndiveError
from endive.kv import Reader, Store, StoreOptions
from endive.kv.manifest_format import MANIFESTS
from endive.objects import LocalStore, ObjectStore, open_objects
from endive.protocol import records_marker
from endive.protocol.records_marker import claim_records
from endive.protocol.requests import Request, Steps, ask, create
from endive.protocol.sequenced import Family, newest, propose
from endive.protocol.two_phase import CommitRecord, GetRecord, InsertRecord, OpenRecords, TransferRecord
from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration, RecordEvent, explore
from endive.testing.store_state import Contents

OPTIONS = StoreOptions(compact_here=False)


def with_records(directory: Path, records: str, store: str = "store") -> ObjectStore:
    return open_objects(str(directory / store), records=f"sqlite://{directory}/{records}.db")


def put(objects: ObjectStore, key: bytes) -> None:
    with Store(objects, options=OPTIONS) as store:
        store.put(key, b"value")


# Openings one after the other.


def test_a_store_with_records_is_not_opened_without_them(tmp_path: Path) -> None:
    put(with_records(tmp_path, "a"), b"1")

    for kind in (Store, Reader):
        with pytest.raises(ConfigurationError, match="written with a record store; open it with that record store"):
            kind(LocalStore(tmp_path / "store"))


def test_a_store_with_records_is_not_opened_with_others(tmp_path: Path) -> None:
    put(with_records(tmp_path, "a"), b"1")

    for kind in (Store, Reader):
        with pytest.raises(ConfigurationError, match="written with another record store"):
            kind(with_records(tmp_path, "b"))
    put(with_records(tmp_path, "a"), b"2")


def test_a_store_without_records_is_not_opened_with_some(tmp_path: Path) -> None:
    put(LocalStore(tmp_path / "store"), b"1")

    with pytest.raises(ConfigurationError, match="written without a record store; open it without `records`"):
        Store(with_records(tmp_path, "a"))
    put(LocalStore(tmp_path / "store"), b"2")


def test_records_serve_one_store(tmp_path: Path) -> None:
    put(with_records(tmp_path, "a"), b"1")

    with pytest.raises(ConfigurationError, match="belongs to another store"):
        Store(with_records(tmp_path, "a", "other store"))
    assert not (tmp_path / "other store").exists()


def test_a_store_of_a_version_without_markers_is_adopted(tmp_path: Path) -> None:
    put(with_records(tmp_path, "a"), b"1")
    (marker,) = (tmp_path / "store" / "manifest").glob("records-*")
    marker.unlink()
    objects = with_records(tmp_path, "a")
    objects._records.delete(records_marker.CLAIM)  # type: ignore[attr-defined]

    put(objects, b"2")

    with Reader(objects) as reader:
        assert [key for key, _ in reader.scan()] == [b"1", b"2"]
    with pytest.raises(ConfigurationError, match="written with a record store"):
        Store(LocalStore(tmp_path / "store"))


def test_a_reader_leaves_no_marker(tmp_path: Path) -> None:
    objects = with_records(tmp_path, "a")

    assert objects.list("manifest/") == ()
    assert not (tmp_path / "store").exists()


def test_the_marker_is_beside_the_manifests() -> None:
    assert MANIFESTS.prefix == records_marker.PREFIX


# Openings at once. The explorer has one record store: names before a colon make several of it.


def renamed(request: Request[Any], records: str) -> Request[Any]:
    match request:
        case InsertRecord(destination, source):
            return InsertRecord(f"{records}:{destination}", source)
        case GetRecord(destination):
            return GetRecord(f"{records}:{destination}")
        case CommitRecord(destination):
            return CommitRecord(f"{records}:{destination}")
        case OpenRecords():
            raise NotImplementedError
    return request


def in_records(records: str, steps: Steps[Any]) -> Steps[Any]:
    """Run a protocol with a record store of its own."""
    request = next(steps)
    while True:
        try:
            reply = yield renamed(request, records)
        except EndiveError as error:
            request = steps.throw(error)
            continue
        if isinstance(reply, TransferRecord):
            reply = replace(reply, destination=reply.destination.partition(":")[2])
        try:
            request = steps.send(reply)
        except StopIteration:
            return None


def opener(records: str) -> Steps[str]:
    """Open a store with a record store, as the first write does."""
    try:
        yield from in_records(records, claim_records())
    except EndiveError as error:
        return type(error).__name__
    yield from ask(RecordEvent(("writes", records)))
    return "writes"


def encoded(value: str) -> bytes:
    return value.encode()


def decoded(_: str, body: bytes) -> str:
    return body.decode()


FAMILY: Family[str] = Family(MANIFESTS.prefix, MANIFESTS.suffix, encoded, decoded)


def plain_opener() -> Steps[str]:
    """Open a store without a record store: create the first manifest, if there is none."""
    try:
        base = yield from newest(FAMILY)
        if base is None:
            yield from propose(FAMILY, None, "plain")
    except EndiveError as error:
        return type(error).__name__
    yield from ask(RecordEvent(("writes", "without records")))
    return "writes"


def one_kind_of_writer(_: Contents, events: frozenset[Hashable]) -> str | None:
    return f"writers that do not see each other: {sorted(map(str, events))}" if len(events) > 1 else None


def searched(programs: dict[str, Program], bounds: Bounds) -> Exploration:
    found = explore(programs, {"one kind of writer": one_kind_of_writer}, bounds)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result
    return found


A, SECOND_A, B = (partial(opener, name) for name in ("a", "a", "b"))
FAULTS = Bounds(lost_replies=1, crashes=1, refusals=1)
CASES: dict[str, tuple[dict[str, Program], Bounds]] = {
    "two record stores": ({"a": A, "b": B}, FAULTS),
    "two record stores, one of them twice": ({"a": A, "second a": SECOND_A, "b": B}, Bounds(lost_replies=1)),
    "a record store and none": ({"a": A, "plain": plain_opener}, FAULTS),
    "two record stores and none": ({"a": A, "b": B, "plain": plain_opener}, Bounds()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_openers_at_once_do_not_both_write(case: tuple[dict[str, Program], Bounds]) -> None:
    found = searched(*case)

    assert found.violation is None
    assert any("writes" in results for results in found.results)


def test_openers_with_the_same_records_all_write() -> None:
    found = searched({"a": A, "second a": SECOND_A}, Bounds())

    assert found.results == {("writes", "writes")}


# Mutants.


@contextmanager
def claimed_without_a_second_listing() -> Iterator[None]:
    """Check before the marker is written, and not again."""

    def require_no_other(own: str) -> Steps[None]:
        if not own:
            yield from require_before(own)

    require_before = records_marker._require_no_other
    with patch.object(records_marker, "_require_no_other", require_no_other):
        yield


@contextmanager
def listed_only_before_the_first_manifest() -> Iterator[None]:
    """A plain writer that does not list again after it has created the first manifest."""

    def propose_only(family: Family[str], base: None, value: str) -> Steps[Any]:
        return (yield from create(family.path_of(1), family.encode(value)))

    with patch(f"{__name__}.propose", propose_only):
        yield


MUTANTS: dict[str, tuple[Callable[[], Any], dict[str, Program]]] = {
    "two record stores": (claimed_without_a_second_listing, {"a": A, "b": B}),
    "a record store and none, no second listing of markers": (
        listed_only_before_the_first_manifest,
        {"a": A, "plain": plain_opener},
    ),
    "a record store and none, no second listing of manifests": (
        claimed_without_a_second_listing,
        {"a": A, "plain": plain_opener},
    ),
}


@pytest.mark.parametrize("case", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_search_finds_mutants(case: tuple[Callable[[], Any], dict[str, Program]]) -> None:
    mutant, programs = case
    with mutant():
        found = searched(programs, Bounds())

    assert found.violation is not None
    assert "writers that do not see each other" in found.violation
