"""A store in a local directory.

An object is written under a temporary name, synced, and given its name by a hard link, which fails if the name is
taken: creation is atomic, and a reader never sees half an object. The directory is synced after that, because a name
that is only in the kernel's memory does not survive a power cut. `fsync=False` leaves both out: then what was
acknowledged survives a crash of the process, not one of the machine.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import get_ident

from endive.errors import OutcomeUnknownError, StorageAccessError, StorageUnavailableError
from endive.objects.api import Capabilities, require_path
from endive.protocol.requests import ObjectInfo

TEMPORARY = ".tmp-"
"""How the names of files begin that are being written. They are not objects; listings leave them out."""
_PASSING = {errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT}
_numbers = count()


class LocalStore:
    """Objects as files below `root`. The directory is made on the first write."""

    def __init__(self, root: str | Path, fsync: bool = True) -> None:
        self._root = Path(root).absolute()
        self._fsync = fsync
        self._known_directories: set[Path] = set()
        self.url = self._root.as_uri()
        self.capabilities = Capabilities(create_if_absent=True, survives_power_loss=fsync, shared=True)

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
            except FileExistsError:
                return False
            try:
                self._sync_directory(self._file(path).parent)
            except OSError as error:  # the name is there: to call it a failure would let the caller do it twice
                raise OutcomeUnknownError(path) from error
            return True

    def put(self, path: str, body: bytes) -> None:
        with self._errors(path), self._written(path, body) as temporary:
            temporary.replace(self._file(path))
            self._sync_directory(self._file(path).parent)

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        directory = prefix.rpartition("/")[0]
        with self._errors(prefix):
            found = self._walk(self._root / directory, f"{directory}/" if directory else "", prefix, after)
            return tuple(sorted(found, key=lambda info: info.path))

    def delete(self, path: str) -> None:
        with self._errors(path):
            self._file(path).unlink(missing_ok=True)
        # Not synced: an object that comes back after a power cut is collected again.

    def _walk(self, directory: Path, path: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield what a listing has below `directory`, in any order. Files that it leaves out are not looked at."""
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
    def _written(self, path: str, body: bytes) -> Iterator[Path]:
        """Write `body` under a temporary name beside `path`; the name is gone afterwards."""
        directory = self._file(path).parent
        self._make_directory(directory)
        temporary = directory / f"{TEMPORARY}{os.getpid()}-{get_ident()}-{next(_numbers)}"
        try:
            with temporary.open("xb", buffering=0) as file:
                remaining = memoryview(body)
                while remaining:
                    remaining = remaining[file.write(remaining) or 0 :]
                if self._fsync:
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):  # whatever became of the object, it is not for this to say
                temporary.unlink(missing_ok=True)

    def _make_directory(self, directory: Path) -> None:
        if directory in self._known_directories:
            return
        missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, "a file is where a directory should be") from error
        for made in missing:
            self._sync_directory(made.parent)
        self._known_directories.add(directory)

    def _sync_directory(self, directory: Path) -> None:
        if not self._fsync:
            return
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Tell apart what may pass and what will not. Nothing was changed in either case: the name comes last.

        What fails behind the name is told by who gave it.
        """
        try:
            yield
        except OSError as error:
            place = f"{self.url}/{path}"
            problem = error.strerror or str(error)
            kind = StorageUnavailableError if error.errno in _PASSING else StorageAccessError
            raise kind(place, problem) from error
