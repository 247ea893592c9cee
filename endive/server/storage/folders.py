"""The folders of a table in a bucket, and whether a request stays inside them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from endive.catalog.maintenance.protection import PATH_PROPERTIES
from endive.server.errors import HttpError

SCHEMES = ("s3", "s3a", "s3n")
WILD = frozenset("*?$\\")
"""Signs with a meaning in a policy: a folder that has one is never put into a policy."""


@dataclass(frozen=True)
class Folder:
    """A folder in a bucket."""

    bucket: str
    key: str
    """Without a slash at its ends."""

    @property
    def location(self) -> str:
        """Its URL."""
        return f"s3://{self.bucket}/{self.key}"

    def has(self, bucket: str, key: str) -> bool:
        """Whether an object is inside."""
        parts = key.split("/")
        return bucket == self.bucket and key.startswith(f"{self.key}/") and ".." not in parts and "." not in parts


def folders_of(location: str, properties: Mapping[str, str]) -> tuple[Folder, ...]:
    """Return the folders of a table: its location, and those that its properties name; inner ones are left out."""
    places = [location, *(properties[name] for name in PATH_PROPERTIES if name in properties)]
    found: list[Folder] = []
    for place in places:
        folder = _folder(place)
        if not any(one == folder or one.has(folder.bucket, folder.key) for one in found):
            found.append(folder)
    return tuple(found)


def _folder(location: str) -> Folder:
    parts = urlsplit(location)
    key = parts.path.strip("/")
    if parts.scheme not in SCHEMES or not parts.netloc or parts.query or parts.fragment:
        raise HttpError(406, "UnsupportedOperationException", f"No keys can be given for files at {location}")
    if not key or WILD & set(location) or {"..", "."} & set(key.split("/")) or "//" in key:
        raise HttpError(403, "ForbiddenException", f"No keys are given for the folder {location}")
    return Folder(parts.netloc, key)


def inside(folders: Iterable[Folder], bucket: str, key: str) -> bool:
    """Whether an object is inside one of the folders."""
    return any(one.has(bucket, key) for one in folders)
