"""An object store in a local directory.

An object is written under a temporary name, synced, and given its name by a hard link, which fails if the name is
taken: creation is atomic, and a reader never sees half an object. Then the directory is synced, because a name that is
only in the kernel's memory does not survive a power failure. A create that finds the name taken syncs the directory
too: the object may be its own, from an attempt whose sync failed, or another process's that is not synced yet. For the
same reason, the first write into a directory syncs its parents, whether this process made them or not.

`fsync=False` omits all syncs: acknowledged writes then survive a crash of the process, not of the machine.
"""

import errno
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import get_ident
from urllib.parse import unquote, urlsplit

from endive.errors import ConfigurationError, OutcomeUnknownError, StorageAccessError, StorageUnavailableError
from endive.objects.api import Capabilities, require_path
from endive.protocol.requests import ObjectInfo

TEMPORARY = ".tmp-"
"""Prefix of the names of files that are being written. They are not objects; listings omit them."""
_PASSING = {errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT}
_numbers = count()


def sync(path: Path) -> None:
    """Write a file, or the names in a directory, to stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_parents(directory: Path, durable: Container[Path] = ()) -> None:
    """Make the names of a directory and of its parents durable, up to the mount point or a `durable` directory.

    Another process may have made any of them a moment ago, and may not have synced it yet.
    """
    while directory not in durable and not os.path.ismount(directory):
        directory = directory.parent
        with suppress(PermissionError):  # a directory that this user can neither list nor have made an entry in
            sync(directory)


class LocalStore:
    """Objects as files below `root`. The first write creates the directory."""

    def __init__(self, root: str | Path, fsync: bool = True) -> None:
        self._root = Path(root).absolute()
        self._fsync = fsync
        self._known_directories: set[Path] = set()
        self.url = self._root.as_uri()
        self.capabilities = Capabilities(
            create_if_absent=True, survives_power_loss=fsync, shared=True, reads_at_once=True
        )

    def sibling(self, url: str) -> "LocalStore":
        """Return the store in another directory, which is synced as this one is."""
        parts = urlsplit(url)
        if parts.scheme != "file":
            raise ConfigurationError(url, ["a store in a directory shares files only with others in directories"])
        return LocalStore(unquote(parts.path), self._fsync)

    def get(self, path: str) -> bytes | None:
        with self._errors(path), suppress(FileNotFoundError):
            return self._file(path).read_bytes()
        return None

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        with self._errors(path), suppress(FileNotFoundError), self._file(path).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)
        return None

    def put_if_absent(self, path: str, body: bytes) -> bool:
        with self._errors(path), self._written(path, body) as temporary:
            try:
                os.link(temporary, self._file(path))
                is_created = True
            except FileExistsError:
                is_created = False
            try:
                self._sync_directory(self._file(path).parent)
            except OSError as error:  # the name exists, but may not survive: neither success nor failure
                raise OutcomeUnknownError(path) from error
            return is_created

    def put(self, path: str, body: bytes) -> None:
        with self._errors(path), self._written(path, body) as temporary:
            temporary.replace(self._file(path))
            self._sync_directory(self._file(path).parent)

    def put_unsynced(self, path: str, body: bytes) -> None:
        """Write the object where other processes see it; it may be lost or damaged by a power failure."""
        with self._errors(path), self._written(path, body, synced=False) as temporary:
            temporary.replace(self._file(path))

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        directory = prefix.rpartition("/")[0]
        with self._errors(prefix):
            found = self._walk(self._root / directory, f"{directory}/" if directory else "", prefix, after)
            return tuple(sorted(found, key=lambda info: info.path))

    def delete(self, path: str) -> None:
        with self._errors(path):
            self._file(path).unlink(missing_ok=True)
        # Not synced: an object that reappears after a power failure is garbage-collected again.

    def delete_temporaries(self, before_unix_ms: int) -> int:
        """Delete files that crashed processes have left under temporary names, written before a time; return how many.

        A writer that is stalled for so long finds its file gone, and its write fails without effect.
        """
        stale = 0
        with self._errors(""):
            for directory, _, names in os.walk(self._root):
                for name in names:
                    file = Path(directory, name)
                    if name.startswith(TEMPORARY):
                        with suppress(FileNotFoundError):
                            if file.stat().st_mtime_ns // 1_000_000 < before_unix_ms:
                                file.unlink()
                                stale += 1
        return stale

    def _walk(self, directory: Path, path: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield the objects of a listing below `directory`, in any order. Only their files are examined."""
        with suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                name = path + entry.name
                if entry.is_dir(follow_symlinks=False):
                    yield from self._walk(Path(entry.path), f"{name}/", prefix, after)
                elif name.startswith(prefix) and name > after and not entry.name.startswith(TEMPORARY):
                    with suppress(FileNotFoundError):  # deleted since the directory was read
                        status = entry.stat()
                        yield ObjectInfo(name, status.st_size, status.st_mtime_ns // 1_000_000)

    def _file(self, path: str) -> Path:
        return self._root / require_path(path)

    @contextmanager
    def _written(self, path: str, body: bytes, synced: bool = True) -> Iterator[Path]:
        """Write `body` under a temporary name beside `path`; remove that name afterwards."""
        directory = self._file(path).parent
        self._make_directory(directory)
        temporary = directory / f"{TEMPORARY}{os.getpid()}-{get_ident()}-{next(_numbers)}"
        try:
            with temporary.open("xb", buffering=0) as file:
                remaining = memoryview(body)
                while remaining:
                    remaining = remaining[file.write(remaining) or 0 :]
                if self._fsync and synced:
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):  # must not hide the outcome of the write
                temporary.unlink(missing_ok=True)

    def _make_directory(self, directory: Path) -> None:
        if directory in self._known_directories:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, "a file is where a directory should be") from error
        if self._fsync:
            sync_parents(directory, self._known_directories)
        self._known_directories |= {directory, self._root}

    def _sync_directory(self, directory: Path) -> None:
        if self._fsync:
            sync(directory)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Raise temporary errors as unavailable, others as denied. Neither has changed anything: the name comes last.

        Errors after the object has its name are raised where they occur.
        """
        try:
            yield
        except OSError as error:
            place = f"{self.url}/{path}"
            problem = error.strerror or str(error)
            kind = StorageUnavailableError if error.errno in _PASSING else StorageAccessError
            raise kind(place, problem) from error
