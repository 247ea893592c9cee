"""Damage, full disks and missing permissions: each has its own error, which names the object, and nothing is lost.

Every test ends the same way: the trouble is over, and everything that was acknowledged is there.
"""

import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from endive.drivers.blocking import BlockingDriver
from endive.errors import (
    ConfigurationError,
    CorruptObjectError,
    EndiveError,
    MissingObjectError,
    StorageAccessError,
    StoreNotFoundError,
)
from endive.kv import Reader, Store, StoreOptions
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.kv.store import WriterKind
from endive.objects import LocalStore, MemoryStore
from endive.objects.api import Capabilities

QUIET = StoreOptions(compact_here=False, poll_interval_ms=3_600_000, flush_interval_ms=3_600_000, retention_ms=0)
ROWS = {b"level%03d" % number: b"v" * 100 for number in range(300)} | {b"wal%d" % number: b"w" for number in range(4)}


def opened(root: Path) -> Store:
    return Store(LocalStore(root, fsync=False), options=QUIET)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a file in the levels and four writes in the WAL."""
    with opened(tmp_path / "store") as store:
        store.write([(key, value) for key, value in ROWS.items() if key.startswith(b"level")])
        store.compact()
        for number in range(4):
            store.put(b"wal%d" % number, b"w")
    return tmp_path / "store"


def read_everything(root: Path) -> dict[bytes, bytes]:
    """Read by a reader, then by a writer that opens the store: a key of each kind, then all."""
    with Reader(LocalStore(root, fsync=False)) as reader:
        reader.get(b"level000")
        reader.get(b"wal3")
    with opened(root) as store:
        return dict(store.scan())


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def faults(root: Path) -> list[str]:
    driver = BlockingDriver(LocalStore(root, fsync=False))
    try:
        return [str(fault) for fault in driver.run(check_store()).findings]
    finally:
        driver.close()


# Damage.

NEWEST_MANIFEST, LEVEL, WRITE = "manifest/*", "levels/*", "wal/*4.sst"  # a write with others behind it

Damage = Callable[[bytes], bytes]


def flipped(share: float) -> Damage:
    def damage(body: bytes) -> bytes:
        place = int(share * (len(body) - 1))
        return body[:place] + bytes((body[place] ^ 0x10,)) + body[place + 1 :]

    return damage


DAMAGES: dict[str, Damage] = {
    "cut in half": lambda body: body[: len(body) // 2],
    "cut to nothing": lambda _: b"",
    "foreign": lambda _: b"somebody's notes, of which nobody here knows anything" * 9,
    **{f"a bit flipped at {share}": flipped(share) for share in (0, 0.3, 0.6, 0.9, 1)},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("kind", [NEWEST_MANIFEST, LEVEL, WRITE])
def test_a_damaged_object_is_named_and_nothing_is_lost(root: Path, kind: str, damage: Damage) -> None:
    path = max(root.glob(kind))
    before = contents(root)
    path.write_bytes(damage(path.read_bytes()))
    damaged = contents(root)

    with pytest.raises(CorruptObjectError, match=path.name):
        read_everything(root)

    assert {name: body for name, body in contents(root).items() if name in damaged} == damaged
    path.write_bytes(before[str(path.relative_to(root))])
    assert read_everything(root) == ROWS
    assert faults(root) == []


@pytest.mark.parametrize("kind", [LEVEL, WRITE])
def test_bytes_behind_the_end_are_found_by_a_check(root: Path, kind: str) -> None:
    path = max(root.glob(kind))
    with path.open("ab") as file:
        file.write(b"more")

    (fault,) = faults(root)
    assert path.name in fault


@pytest.mark.parametrize("kind", [LEVEL, WRITE])
def test_a_missing_object_is_named_and_nothing_is_put_in_its_place(root: Path, kind: str) -> None:
    path = max(root.glob(kind))
    body = path.read_bytes()
    path.unlink()
    remaining = contents(root)

    with pytest.raises(MissingObjectError, match=path.name):
        read_everything(root)
    if kind == WRITE:
        with pytest.raises(MissingObjectError, match=path.name):
            opened(root)

    assert any(path.name in fault and "missing" in fault for fault in faults(root))
    assert contents(root) == remaining
    path.write_bytes(body)
    assert read_everything(root) == ROWS
    assert faults(root) == []


def test_a_lost_manifest_is_not_taken_for_an_older_state(root: Path) -> None:
    with opened(root) as store:
        pinned = store.checkpoint(0)
        for _ in range(3):
            store.put(b"level000", b"newer")
            store.compact()
    driver = BlockingDriver(LocalStore(root))  # of the manifests, the newest one and those that are pinned are left
    driver.run(collect_garbage(retention_ms=0))
    driver.close()
    path = max(root.glob(NEWEST_MANIFEST))
    assert pinned.manifest_id < int(path.stem) - 1
    body = path.read_bytes()
    path.unlink()
    remaining = contents(root)

    for use in (read_everything, opened, faults):
        with pytest.raises(MissingObjectError, match=r"manifest/\d+\.manifest"):
            use(root)

    assert {name: body for name, body in contents(root).items() if name in remaining} == remaining
    path.write_bytes(body)
    assert read_everything(root) == ROWS | {b"level000": b"newer"}
    assert faults(root) == []


@pytest.mark.parametrize("boundary_too", [False, True])
def test_a_store_without_manifests_is_not_taken_for_an_empty_place(root: Path, boundary_too: bool) -> None:
    with opened(root) as store:
        store.compact()
        store.collect()
    away = root.with_name("away")
    (root / "manifest").rename(away)
    if boundary_too:
        (root / "manifest-boundary").rename(root.with_name("boundary away"))

    with pytest.raises(MissingObjectError, match="manifest/"):
        opened(root)

    shutil.rmtree(root / "manifest", ignore_errors=True)
    away.rename(root / "manifest")
    if boundary_too:
        root.with_name("boundary away").rename(root / "manifest-boundary")
    assert read_everything(root) == ROWS
    assert faults(root) == []


def test_a_gap_as_long_as_parallel_writes_can_leave_is_no_damage(tmp_path: Path) -> None:
    objects = LocalStore(tmp_path, fsync=False)
    options = StoreOptions(compact_here=False, max_parallel_writes=3)
    with Store(objects, options=options) as store:
        store.put(b"a", b"1")
        slot = store.wal_end
    written = tmp_path / "wal" / f"{slot:020}.sst"
    written.rename(tmp_path / "wal" / f"{slot + 2:020}.sst")  # as if the two before it had not arrived

    with Reader(objects) as reader:
        assert reader.wal_end == slot - 1
    written.with_name(f"{slot + 2:020}.sst").rename(tmp_path / "wal" / f"{slot + 3:020}.sst")
    with pytest.raises(MissingObjectError, match=written.name):
        Reader(objects)


# A full disk.


def test_a_full_disk_stops_the_writer_and_nothing_is_lost(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    store = Store(LocalStore(root), options=QUIET)
    store.put(b"acknowledged", b"1")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_space)
        with pytest.raises(StorageAccessError, match=r"wal/.*sst: No space left on device"):
            store.put(b"refused", b"1")
        with pytest.raises(StorageAccessError, match="No space left"):
            store.put(b"again", b"1")  # it has halted, and says why
        store.close()

    assert read_everything(root) == ROWS | {b"acknowledged": b"1"}
    assert faults(root) == []


# No permission.


@pytest.fixture
def shared_root(root: Path) -> Iterator[Path]:
    """The store where another user can get at it: pytest's own directories are closed."""
    directory = Path(tempfile.mkdtemp(prefix="endive-test-"))
    directory.chmod(0o755)
    shutil.copytree(root, directory / "store")
    yield directory / "store"
    for path in (directory, *directory.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(directory)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Go on without root's rights, for whom no permission is missing."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


def with_mode(root: Path, mode: int) -> None:
    for path in (*root.iterdir(), root):
        path.chmod(mode)


def test_a_store_that_may_only_be_read_can_be_read_and_is_not_changed(shared_root: Path) -> None:
    before = contents(shared_root)
    with_mode(shared_root, 0o555)

    with somebody_else():
        with pytest.raises(StorageAccessError, match=r"manifest/.*manifest: Permission denied"):
            opened(shared_root)
        with Reader(LocalStore(shared_root)) as reader:
            assert dict(reader.scan()) == ROWS
            with pytest.raises(StorageAccessError, match="Permission denied"):
                reader.create_checkpoint(60)

    assert contents(shared_root) == before


def test_a_writer_that_loses_its_permission_says_so_and_loses_nothing(shared_root: Path) -> None:
    with_mode(shared_root, 0o777)  # anybody, for now
    with somebody_else():
        store = opened(shared_root)
        store.put(b"acknowledged", b"1")
    with_mode(shared_root, 0o555)
    with somebody_else():
        with pytest.raises(StorageAccessError, match=r"wal/.*sst: Permission denied"):
            store.put(b"refused", b"1")
        store.close()
    with_mode(shared_root, 0o755)

    assert read_everything(shared_root) == ROWS | {b"acknowledged": b"1"}
    assert faults(shared_root) == []


def test_a_store_that_may_not_be_read_is_not_taken_for_an_empty_place(shared_root: Path) -> None:
    with_mode(shared_root, 0o000)

    with somebody_else():
        for use in (opened, read_everything):
            with pytest.raises(StorageAccessError, match="Permission denied") as raised:
                use(shared_root)
            assert not isinstance(raised.value, StoreNotFoundError)
            assert str(shared_root) in raised.value.path


class Unconditional(MemoryStore):
    """A store without conditional writes, as some S3-compatible servers are."""

    capabilities = Capabilities(create_if_absent=False, survives_power_loss=True, shared=True)


@pytest.mark.parametrize("writer", ["exclusive", "shared"])
def test_a_store_without_conditional_writes_is_refused(writer: WriterKind) -> None:
    objects = Unconditional()

    with pytest.raises(ConfigurationError, match="no conditional writes"):
        Store(objects, writer)
    assert objects.list("") == ()


def test_errors_are_one_line_each(root: Path) -> None:
    max(root.glob(LEVEL)).write_bytes(b"")

    with pytest.raises(EndiveError) as raised:
        read_everything(root)
    assert "\n" not in str(raised.value)
