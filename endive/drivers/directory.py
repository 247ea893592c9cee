"""A directory of whole files, on this machine or on an object store: `sweeps/x`, `s3://bucket/sweeps/x`.

Both kinds use the same code. A file appears whole or not at all; `create` decides which of several writers wins;
nothing is renamed, and a listing may lag behind the writes.

Requests are repeated where that is safe. An error that remains becomes one `ResultError` that names the file and the
remedy.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from endive.drivers.blocking import BlockingDriver
from endive.errors import ConfigurationError, EndiveError, OutcomeUnknownError, ResultError, StorageUnavailableError
from endive.objects import ObjectStore, open_objects
from endive.objects.api import require_conditional_writes
from endive.objects.remote import SCHEMES
from endive.protocol.requests import Delete, Get, GetAll, List, ObjectInfo, Put, create

REPEAT = "repeat the command: finished work is kept"
OTHERWISE = f"remove the cause, then {REPEAT}"

NO_SPACE = "free some space or choose another --out"
ANOTHER = "choose another --out"
NO_BUCKET = "create the bucket, or correct the URL"
REGION = "set the region to that of the bucket: AWS_REGION"
DENIED = "check that the bucket exists and the permissions of the credentials, or choose another --out"

REMEDIES = {
    "not a directory": ANOTHER,
    "where a directory should be": ANOTHER,
    "is a directory": ANOTHER,
    "file exists": ANOTHER,
    "file name too long": ANOTHER,
    "read-only": ANOTHER,
    "permission denied": ANOTHER,
    "no space left": NO_SPACE,
    "file too large": NO_SPACE,
    "disk quota": NO_SPACE,
    "quotaexceeded": NO_SPACE,
    "insufficient": NO_SPACE,
    "expired": f"renew the credentials, then {REPEAT}",
    "nosuchbucket": NO_BUCKET,
    "containernotfound": NO_BUCKET.replace("bucket", "container"),
    "redirect": REGION,
    "authorizationheadermalformed": REGION,
    "illegallocationconstraint": REGION,
    "no credentials": f"check the credentials, then {REPEAT}",
    "invalidaccesskeyid": "correct the credentials",
    "signaturedoesnotmatch": "correct the credentials",
    "403": DENIED,
    "forbidden": DENIED,
    "accessdenied": DENIED,
}
"""By a sign in the message of an object store or of the system: what to do."""


@dataclass(frozen=True)
class Directory:
    """A directory by its path or URL. It travels to other processes; each opens a connection of its own.

    `memory://name` is in the memory of the object: for copies that this process reads.
    """

    url: str | Path
    endpoint: str | None = None
    """Address of an S3-compatible server or of an emulator."""

    def __post_init__(self) -> None:
        """Replace the path of a local directory by its absolute form."""
        parts = urlsplit(str(self.url))
        if parts.scheme in SCHEMES or (parts.scheme == "memory" and parts.netloc):
            object.__setattr__(self, "url", str(self.url).rstrip("/"))
        elif parts.scheme in ("", "file") or "://" not in str(self.url):
            path = unquote(parts.path) if parts.scheme == "file" else str(self.url)
            object.__setattr__(self, "url", str(Path(path).absolute()))
        else:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise ConfigurationError(str(self.url), [f"not a directory; write a path, {known}"])

    @classmethod
    def at(cls, place: "Directory | str | Path", endpoint: str | None = None) -> Self:
        """Return the directory at a path or URL; a directory of this class as it is."""
        if isinstance(place, cls):
            return place
        return cls(place.url, place.endpoint) if isinstance(place, Directory) else cls(place, endpoint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.endpoint)

    def __str__(self) -> str:
        return str(self.url)

    def place(self, path: str) -> str:
        """Return the full path or URL of a file."""
        return f"{self}/{path}"

    @property
    def local(self) -> Path | None:
        """The path on this machine; None if the directory is on an object store."""
        return None if "://" in str(self.url) else Path(self.url)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return str(self.url).rpartition("/")[2]

    @cached_property
    def objects(self) -> ObjectStore:
        """The object store behind it."""
        return require_conditional_writes(open_objects(str(self.url), endpoint=self.endpoint))

    @cached_property
    def _driver(self) -> BlockingDriver:
        return BlockingDriver(self.objects)

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if it does not exist."""
        with self._errors(path, "read"):
            return self._driver.answer(Get(path))  # type: ignore[no-any-return]

    def read_all(self, paths: Sequence[str]) -> tuple[bytes | None, ...]:
        """Return the contents of several files, fetched side by side."""
        with self._errors(paths[0] if paths else "", "read"):
            return self._driver.answer(GetAll(tuple(paths)))  # type: ignore[no-any-return]

    def write(self, path: str, body: bytes) -> None:
        """Write a file, replacing any other."""
        with self._errors(path, "written"):
            self._driver.answer(Put(path, body))

    def create(self, path: str, body: bytes) -> bool:
        """Write a file if there is none of that name. False: there is one, and it is unchanged."""
        with self._errors(path, "written"):
            return self._driver.run(create(path, body))

    def list(self, prefix: str) -> tuple[ObjectInfo, ...]:
        """Return the files whose path starts with `prefix`, sorted by path."""
        with self._errors(prefix, "listed"):
            return self._driver.answer(List(prefix))  # type: ignore[no-any-return]

    def delete(self, path: str) -> None:
        """Delete a file. Idempotent."""
        with self._errors(path, "deleted"):
            self._driver.answer(Delete(path))

    def delete_all(self, folder: str) -> None:
        """Delete every file below `folder`; "" is the directory itself."""
        for info in self.list(f"{folder}/" if folder else ""):
            self.delete(info.path)
        if self.local:
            rmtree(self.local / folder, ignore_errors=True)  # what is left is empty

    @contextmanager
    def _errors(self, path: str, done: str) -> Iterator[None]:
        """Turn the object store's errors into one message."""
        try:
            yield
        except OutcomeUnknownError as error:
            raise ResultError(self.place(path), "whether it was written is not known", REPEAT) from error
        except (ConfigurationError, ResultError):
            raise
        except EndiveError as error:
            problem = str(getattr(error, "problem", error))
            is_passing = isinstance(error, StorageUnavailableError)
            remedy = REPEAT if is_passing else remedy_for(problem)
            raise ResultError(self.place(path), f"cannot be {done} ({problem})", remedy) from error


def remedy_for(problem: str) -> str:
    """Return what to do about the message of an object store or of the system."""
    said = problem.lower().replace("_", "")
    return next((remedy for sign, remedy in REMEDIES.items() if sign in said), OTHERWISE)
