"""Processes for the explorer that clone a store, and maintain source and clone meanwhile.

The clone is the store at the root of the explorer's objects, its source is below `source/`.
"""

from collections.abc import Hashable, Mapping

from endive.errors import EndiveError, FencedError
from endive.kv.clones import clone_store
from endive.kv.log.committing import append_exclusive
from endive.kv.log.opening import open_writer
from endive.kv.log.state import state_at
from endive.kv.log.wal import WalEntry
from endive.kv.maintenance.compactor import compact_levels, compact_wal
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.lookup import find_in_runs
from endive.kv.sst.reading import NoCache
from endive.kv.views import newest_view
from endive.protocol.requests import Steps, ask, elsewhere
from endive.protocol.sequenced import newest
from endive.testing.explorer import Invariant, RecordEvent
from tests.races.processes import driver_of
from tests.races.scenarios import at_rest, rows_of
from tests.store_protocols import claim_compactor, find_in_entries

SOURCE = "source/"
VALUES = ("x", "y", "z")
"""Rows of the source: two runs in the levels, and one in the WAL."""


def source_at_rest() -> dict[str, bytes]:
    """Return the objects of a source with two runs in its levels and one row in its WAL."""
    driver = driver_of()
    lease = driver.run(open_writer())
    epoch = driver.run(claim_compactor())
    for place, value in enumerate(VALUES):
        entry = WalEntry(lease.next_entry + place, rows_of({value: value}, place + 1), lease.epoch, f"{place:032x}")
        driver.run(append_exclusive(state_at(lease.manifest, lease.epoch), entry))
        if value != VALUES[-1]:
            driver.run(compact_wal(epoch))
    return {SOURCE + info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}


# Processes.


def cloner() -> Steps[str]:
    yield from clone_store("clone", SOURCE)
    yield from ask(RecordEvent("cloned"))
    return "done"


def source_maintenance() -> Steps[str]:
    """Merge all runs of the source, and collect the garbage at once."""
    yield from elsewhere(SOURCE, _maintenance())
    return "done"


def clone_maintenance() -> Steps[str]:
    """Do the same with the clone, as soon as there is one: it ends the sharing."""
    found = yield from newest(MANIFESTS)
    if found is None:
        return "no clone"
    yield from _maintenance()
    return "done"


def clone_collection() -> Steps[str]:
    """Collect the clone's garbage, with its files still shared."""
    found = yield from newest(MANIFESTS)
    if found is not None:
        yield from collect_garbage(retention_ms=0)
    return "done"


def _maintenance() -> Steps[None]:
    try:
        epoch = yield from claim_compactor()
        yield from compact_levels(epoch, everything=True)
    except FencedError:
        return
    yield from collect_garbage(retention_ms=0)


# Invariants.


def the_clone_has_all_rows(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    if at_rest(bodies, newest(MANIFESTS)) is None:
        return "a clone that was made is gone" if "cloned" in events else None
    return _missing(bodies, "the clone")


def the_source_has_all_rows(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    inside = {path.removeprefix(SOURCE): body for path, body in bodies.items() if path.startswith(SOURCE)}
    return _missing(inside, "the source")


def _missing(bodies: Mapping[str, bytes], name: str) -> str | None:
    for value in VALUES:
        try:
            is_there = at_rest(bodies, _holds(value.encode()))
        except EndiveError as error:
            return f"{name}: {type(error).__name__}: {error}"
        if not is_there:
            return f"{name} lacks {value!r}"
    return None


def _holds(key: bytes) -> Steps[bool]:
    view = yield from newest_view()
    row = find_in_entries(view.entries, key)
    if row is None:
        row = yield from find_in_runs(view.manifest.value.runs, key, NoCache())
    return row is not None


INVARIANTS: dict[str, Invariant] = {"clone": the_clone_has_all_rows, "source": the_source_has_all_rows}
