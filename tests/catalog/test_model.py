"""Random operations on the catalog and on a plain model of it, which must agree after each."""

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from endive.catalog import KVCatalog, TableChange
from endive.catalog.maintenance.row_check import check_rows
from endive.catalog.model.file_rows import NO_FILES
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import TransactionalStore
from endive.errors import (
    AlreadyInCatalogError,
    CommitConflictError,
    EndiveError,
    NamespaceNotEmptyError,
    NotInCatalogError,
)
from tests.catalog import memory_io
from tests.catalog.helped import HelpedStore
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NUMBERS

LEVELS = st.sampled_from(["a", "a.b", "%2E/ä"])
NAMESPACES = st.sampled_from([("a",), ("a", "a"), ("a.b",), ("%2E/ä", "a.b")])
TABLES = st.tuples(NAMESPACES, LEVELS).map(lambda pair: (*pair[0], pair[1]))
KEYS = st.sampled_from(["k", "l"])
PICKS = st.integers(-1, 5)
MODES = st.sampled_from(["before-acknowledgement", "background"])


@dataclass
class Modelled:
    """A table, as far as the model goes."""

    properties: dict[str, str]
    snapshots: list[int] = field(default_factory=list)
    refs: dict[str, int] = field(default_factory=dict)
    history: list[int] = field(default_factory=list)
    commits: int = 0


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        memory_io.FILES.clear()
        self.io = {"py-io-impl": "tests.catalog.memory_io.MemoryIO"}
        self.store = self.new_store()
        self.catalog = KVCatalog(self.store, "memory://warehouse", self.io, create=True)
        self.namespaces: dict[Identifier, dict[str, str]] = {}
        self.tables: dict[Identifier, Modelled] = {}
        self.ids = count(1)

    def new_store(self) -> TransactionalStore:
        return DictStore()

    def teardown(self) -> None:
        self.catalog.close()
        self.store.close()

    # The model's questions.

    def exists(self, namespace: Identifier) -> bool:
        size = len(namespace)
        inside = [*self.namespaces, *(name[:-1] for name in self.tables)]
        return any(name[:size] == namespace for name in inside)

    def holds(self, namespace: Identifier) -> bool:
        size = len(namespace)
        tables = any(name[:-1][:size] == namespace for name in self.tables)
        return tables or any(name[:size] == namespace and len(name) > size for name in self.namespaces)

    def expects(self, error: type[EndiveError] | None) -> "pytest.RaisesExc[EndiveError] | Nothing":
        return pytest.raises(error) if error is not None else Nothing()

    def some(self, name: Identifier, pick: int) -> Identifier:
        """A table that is there, mostly; otherwise the one that was drawn."""
        there = sorted(self.tables)
        return there[pick % len(there)] if there and pick >= 0 else name

    # Namespaces.

    @initialize(mode=MODES)
    def begin(self, mode: str) -> None:
        self.create_namespace(("a",), "first")
        self.create_namespace(("%2E/ä", "a.b"), "second")
        self.create_table(("a", "a.b"), mode)

    @rule(name=NAMESPACES, comment=st.text(max_size=3))
    def create_namespace(self, name: Identifier, comment: str) -> None:
        error = AlreadyInCatalogError if self.exists(name) else None
        with self.expects(error):
            self.catalog.create_namespace(name, {"comment": comment})
            self.namespaces[name] = {"comment": comment}

    @rule(name=NAMESPACES)
    def drop_namespace(self, name: Identifier) -> None:
        error = NotInCatalogError if not self.exists(name) else NamespaceNotEmptyError if self.holds(name) else None
        with self.expects(error):
            self.catalog.drop_namespace(name)
            self.namespaces.pop(name)

    @rule(name=NAMESPACES, key=KEYS, value=st.text(max_size=2))
    def set_namespace_property(self, name: Identifier, key: str, value: str) -> None:
        with self.expects(None if self.exists(name) else NotInCatalogError):
            self.catalog.update_namespace_properties(name, {"comment"}, {key: value})
            kept = {k: v for k, v in self.namespaces.get(name, {}).items() if k != "comment"}
            self.namespaces[name] = {**kept, key: value}

    # Tables.

    @rule(name=TABLES, mode=MODES)
    def create_table(self, name: Identifier, mode: str) -> None:
        error = (
            NotInCatalogError if not self.exists(name[:-1]) else AlreadyInCatalogError if name in self.tables else None
        )
        properties = {"endive.metadata-json": mode}
        with self.expects(error):
            self.catalog.create_table(name, NUMBERS, properties=dict(properties))
            self.tables[name] = Modelled(properties)

    @rule(name=TABLES, pick=PICKS)
    def drop_table(self, name: Identifier, pick: int) -> None:
        name = self.some(name, pick)
        with self.expects(None if name in self.tables else NotInCatalogError):
            self.catalog.drop_table(name)
            self.tables.pop(name)

    @rule(source=TABLES, pick=PICKS, other=TABLES)
    def rename_table(self, source: Identifier, pick: int, other: Identifier) -> None:
        source = self.some(source, pick)
        error = (
            NotInCatalogError
            if not self.exists(other[:-1]) or source not in self.tables
            else AlreadyInCatalogError
            if other in self.tables
            else None
        )
        with self.expects(error):
            self.catalog.rename_table(source, other)
            self.tables[other] = self.tables.pop(source)

    @rule(name=TABLES, pick=PICKS, key=KEYS, value=st.text(max_size=2))
    def set_property(self, name: Identifier, pick: int, key: str, value: str) -> None:
        name = self.some(name, pick)
        with self.expects(None if name in self.tables else NotInCatalogError):
            self.catalog.update_properties(name, {key: value})
            table = self.tables[name]
            table.commits += 1  # also if the value was the same: the table was updated
            table.properties[key] = value

    # Snapshots.

    def snapshot(self, name: Identifier, branch: str) -> tuple[int, tuple[TableUpdate, ...]]:
        table, new = self.catalog.load_table(name).metadata, next(self.ids)
        snapshot = Snapshot(
            snapshot_id=new,
            parent_snapshot_id=self.tables[name].refs.get(branch),
            sequence_number=table.next_sequence_number(),
            timestamp_ms=table.last_updated_ms + 1,
            manifest_list=f"list {new}",
            summary=Summary(Operation.OVERWRITE),
            schema_id=0,
        )
        return new, (AddSnapshotUpdate(snapshot=snapshot), pointing(branch, new))

    @rule(picks=st.sets(PICKS, min_size=1, max_size=3), stale=st.booleans(), repeat=st.booleans())
    def add_snapshots(self, picks: set[int], stale: bool, repeat: bool) -> None:
        """One snapshot for each of the tables, all in one commit; on an old state, or repeated, now and then."""
        there = sorted({self.some(("none", "none"), pick) for pick in picks} & self.tables.keys())
        changes = []
        for name in there:
            new, updates = self.snapshot(name, "main")
            expected = -1 if stale and name == there[-1] else self.tables[name].refs.get("main")
            requirements = (AssertRefSnapshotId(ref="main", snapshot_id=expected),)
            changes.append((name, new, TableChange(name, requirements, updates, {new: NO_FILES})))
        if not changes:
            return
        commit_id = f"commit {next(self.ids)}"
        with self.expects(CommitConflictError if stale else None):
            for _ in range(1 + repeat):
                self.catalog.commit_many([change for _, _, change in changes], commit_id)
            for name, new, _ in changes:
                self.moved(name, "main", new)

    @rule(name=TABLES, pick=PICKS)
    def add_to_branch(self, name: Identifier, pick: int) -> None:
        name = self.some(name, pick)
        if name in self.tables and self.tables[name].refs:
            new, updates = self.snapshot(name, "dev")
            self.catalog.commit_many([TableChange(name, (), updates, {new: NO_FILES})])
            self.moved(name, "dev", new)

    def moved(self, name: Identifier, branch: str, new: int) -> None:
        table = self.tables[name]
        table.commits += 1
        table.refs[branch] = new
        table.snapshots += [new] if new not in table.snapshots else []
        table.history += [new] if branch == "main" else []

    @rule(name=TABLES, pick=PICKS, data=st.data())
    def set_current_snapshot(self, name: Identifier, pick: int, data: st.DataObject) -> None:
        name = self.some(name, pick)
        if name in self.tables and self.tables[name].snapshots:
            target = data.draw(st.sampled_from(self.tables[name].snapshots))
            self.catalog.set_current_snapshot(name, target)
            if self.tables[name].refs.get("main") != target:
                self.moved(name, "main", target)

    @rule(name=TABLES, pick=PICKS)
    def remove_unreferenced_snapshots(self, name: Identifier, pick: int) -> None:
        name = self.some(name, pick)
        if name not in self.tables:
            return
        table = self.tables[name]
        gone = [one for one in table.snapshots if one not in table.refs.values()]
        if gone:
            self.catalog.commit(name, (), (RemoveSnapshotsUpdate(snapshot_ids=gone),))
            table.commits += 1
            table.snapshots = [one for one in table.snapshots if one not in gone]
            table.history = [one for one in table.history if one not in gone]

    @rule(name=TABLES, pick=PICKS)
    def export(self, name: Identifier, pick: int) -> None:
        name = self.some(name, pick)
        with self.expects(None if name in self.tables else NotInCatalogError):
            location = self.catalog.export_metadata(name)
            assert self.catalog.files.read(location) == self.catalog.load_table(name).metadata

    @rule()
    def open_anew(self) -> None:
        self.catalog.close()
        self.catalog = KVCatalog(self.catalog.store, "memory://warehouse", self.io)

    # They agree.

    @invariant()
    def namespaces_agree(self) -> None:
        found: list[Identifier] = []
        levels = self.catalog.list_namespaces()
        while levels:
            found += levels
            levels = [inner for name in levels for inner in self.catalog.list_namespaces(name)]
        expected = {name[:size] for name in self.namespaces for size in range(1, len(name) + 1)}
        expected |= {name[:size] for name in self.tables for size in range(1, len(name))}
        assert set(found) == expected
        assert len(found) == len(expected)
        for name in found:
            assert self.catalog.namespace_properties(name) == self.namespaces.get(name, {})

    @invariant()
    def tables_agree(self) -> None:
        spaces = {name[:-1] for name in self.tables} | {("a",)} & set(self.namespaces)
        found = {table for space in spaces for table in self.catalog.list_tables(space)}
        assert found == {name for name in self.tables if name[:-1] in spaces}
        for name, model in self.tables.items():
            loaded = self.catalog.load_table(name)
            metadata = loaded.metadata
            assert metadata.properties == model.properties
            assert [one.snapshot_id for one in metadata.snapshots] == model.snapshots
            assert {ref: one.snapshot_id for ref, one in metadata.refs.items()} == model.refs
            assert [one.snapshot_id for one in metadata.snapshot_log] == model.history
            assert metadata.current_snapshot_id == model.refs.get("main")
            assert loaded.version == model.commits
            assert loaded.metadata_location in memory_io.FILES

    @invariant()
    def no_row_is_without_a_table(self) -> None:
        rows = self.catalog.store.read(check_rows)
        assert (rows.findings, rows.pending_deletions) == ([], 0)


class HelpedMachine(Machine):
    """The same, with every transaction carried out by another process."""

    def new_store(self) -> TransactionalStore:
        return HelpedStore()


class Nothing:
    """Expects no error."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def pointing(branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def search(examples: int, steps: int, machine: type[Machine] = Machine) -> None:
    checks = list(HealthCheck)
    chosen = settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.slow
def test_the_catalog_does_what_the_model_does() -> None:
    search(examples=30, steps=25)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(20))
def test_the_catalog_does_what_the_model_does_for_long(part: int) -> None:  # each draws its own
    search(examples=150, steps=60)


@pytest.mark.slow
def test_the_catalog_does_what_the_model_does_if_others_carry_it_out() -> None:
    search(examples=8, steps=20, machine=HelpedMachine)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(4))
def test_the_catalog_does_what_the_model_does_for_long_if_others_carry_it_out(part: int) -> None:
    search(examples=150, steps=60, machine=HelpedMachine)
