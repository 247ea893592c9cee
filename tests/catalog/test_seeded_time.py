"""Seeded runs of a catalog: writers, maintenance, checkpoints, restores and clones, with crashes at any transaction.

A model holds the rows of every table of the catalog, of every checkpoint and of every clone. An operation that crashes
has happened as a whole or not at all. After each operation everything must be as the model says, with all its files.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from endive.catalog import KVCatalog, MaintenanceOptions, clones
from endive.catalog.model.keys import CATALOG, CLONING
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import ConfigurationError
from endive.rng import Stream, stream
from tests.catalog.stand_in import Counting, Died
from tests.catalog.tables import NUMBERS, numbers

AGED = {
    "history.expire.max-snapshot-age-ms": "0",
    "commit.manifest.min-count-to-merge": "2",
    "write.metadata.previous-versions-max": "1",
}
EVERYTHING = MaintenanceOptions(orphan_age_ms=-(10**15))
NAMES = ("db.a", "db.b")
OPERATIONS = 12
CRASHES = 0.4
"""Probability that an operation crashes."""

Rows = dict[str, list[int]]


def rows_in(kv: KVCatalog) -> Rows:
    catalog = EndiveCatalog.on(kv)
    return {
        ".".join(name): sorted(catalog.load_table(name).scan().to_arrow()["n"].to_pylist())
        for name in catalog.list_tables("db")
    }


@dataclass
class World:
    """A catalog, its clones, and what they should have."""

    directory: Path
    rng: Stream
    store: Counting = field(default_factory=Counting)
    now: Rows = field(default_factory=dict)
    checkpoints: dict[str, Rows] = field(default_factory=dict)
    clones: dict[str, tuple[Counting, Rows]] = field(default_factory=dict)
    number: int = 0

    def opened(self) -> KVCatalog:
        return KVCatalog(self.store, f"file://{self.directory}/lake", create=True)

    def pick(self, names: list[str]) -> str:
        return names[int(self.rng.random() * len(names))]

    def attempt(self, action: Callable[[KVCatalog], object], after: Rows | None = None) -> bool:
        """Do something, perhaps with a crash; `after`: the tables once it has happened. Return whether it crashed."""
        self.store.left = int(self.rng.random() * 6) if self.rng.random() < CRASHES else None
        try:
            action(self.opened())
        except Died:
            self.store.left = None
            found = rows_in(self.opened())
            assert found in (self.now, self.now if after is None else after), found
            self.now = found
            return True
        self.store.left = None
        self.now = self.now if after is None else after
        return False

    # Operations.

    def append(self) -> None:
        name, self.number = self.pick(list(self.now)), self.number + 1
        after = {**self.now, name: sorted([*self.now[name], self.number])}
        self.attempt(lambda kv: EndiveCatalog.on(kv).load_table(name).append(numbers(self.number)), after)

    def overwrite(self) -> None:
        name, self.number = self.pick(list(self.now)), self.number + 1
        self.attempt(
            lambda kv: EndiveCatalog.on(kv).load_table(name).overwrite(numbers(self.number)),
            {**self.now, name: [self.number]},
        )

    def drop(self) -> None:
        if len(self.now) > 1:
            name = self.pick(list(self.now))
            after = {key: rows for key, rows in self.now.items() if key != name}
            self.attempt(lambda kv: kv.drop_table(name, purge=self.rng.random() < 0.5), after)

    def create(self) -> None:
        missing = [name for name in NAMES if name not in self.now]
        if missing:
            self.attempt(lambda kv: kv.create_table(missing[0], NUMBERS, properties=AGED), {**self.now, missing[0]: []})

    def maintain(self) -> None:
        self.attempt(lambda kv: kv.maintain(EVERYTHING))

    def checkpoint(self) -> None:
        name, rows = f"point {self.number}-{len(self.checkpoints)}", self.now
        crashed = self.attempt(lambda kv: kv.create_checkpoint(name))
        if not crashed or name in {one.name for one in self.opened().checkpoints()}:
            self.checkpoints[name] = rows

    def delete_checkpoint(self) -> None:
        if self.checkpoints:
            name = self.pick(list(self.checkpoints))
            self.attempt(lambda kv: kv.delete_checkpoint(name))
            if name not in {one.name for one in self.opened().checkpoints()}:
                del self.checkpoints[name]

    def restore(self) -> None:
        if self.checkpoints:
            name = self.pick(list(self.checkpoints))
            before = {one.name for one in self.opened().checkpoints()}
            rows = self.now
            self.attempt(lambda kv: kv.restore(name), self.checkpoints[name])
            for one in self.opened().checkpoints():
                if one.name not in before:
                    self.checkpoints[one.name] = rows

    def clone(self) -> None:
        if len(self.clones) < 2:
            place, target, rows = f"file://{self.directory}/clone-{len(self.clones)}", Counting(), self.now
            target.left = int(self.rng.random() * 8) if self.rng.random() < CRASHES else None
            self.attempt(lambda kv: self._clone(kv, target, place))
            target.left = None
            if CLONING in target.rows:
                with pytest.raises(ConfigurationError):
                    KVCatalog(target, create=True)
                self._clone(self.opened(), target, place)  # the interrupted one goes on
            if CATALOG in target.rows:
                self.clones[place] = (target, rows)

    def _clone(self, kv: KVCatalog, target: Counting, place: str) -> None:
        clones.clone(kv._checkpoints, "lake", target, place, place, kv.files, None, kv.now_ms)

    def use_clone(self) -> None:
        if self.clones:
            place = self.pick(list(self.clones))
            store, rows = self.clones[place]
            if rows:
                name, self.number = self.pick(list(rows)), self.number + 1
                kv = KVCatalog(store)
                EndiveCatalog.on(kv).load_table(name).overwrite(numbers(self.number))
                kv.maintain(EVERYTHING)
                self.clones[place] = (store, {**rows, name: [self.number]})

    def check(self) -> None:
        """Compare everything with the model, and look at every file."""
        kv = self.opened()
        assert rows_in(kv) == self.now
        assert kv.check() == []
        for one in kv.checkpoints():
            if one.name in self.checkpoints:
                past = KVCatalog(self.store.at(one.store_checkpoint))
                assert rows_in(past) == self.checkpoints[one.name], one.name
                assert past.check() == [], one.name
        for place, (store, rows) in self.clones.items():
            clone = KVCatalog(store)
            assert rows_in(clone) == rows, place
            assert clone.check() == [], place


def run(seed: int, directory: Path) -> None:
    world = World(directory, stream(seed, "catalog through time"))
    kv = world.opened()
    kv.create_namespace("db")
    for name in NAMES:
        kv.create_table(name, NUMBERS, properties=AGED)
    world.now = {name: [] for name in NAMES}
    kinds = [
        *(world.append, world.append, world.overwrite, world.maintain, world.maintain, world.checkpoint),
        *(world.restore, world.delete_checkpoint, world.drop, world.create, world.clone, world.use_clone),
    ]
    for _ in range(OPERATIONS):
        kinds[int(world.rng.random() * len(kinds))]()
        world.check()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_through_time(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("part", range(10))
def test_nothing_is_lost_through_time_with_many_seeds(part: int, tmp_path: Path) -> None:
    for seed in range(1000 + part * 1000, 2000 + part * 1000):
        place = tmp_path / str(seed)
        run(seed, place)
        shutil.rmtree(place)
