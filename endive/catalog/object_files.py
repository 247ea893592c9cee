"""A FileIO for S3 and Google Cloud Storage: small files by one request, and no request for a file just written.

PyIceberg's FileIO writes every file as a multipart upload, asks for its size, and reads manifests back: twenty requests
in a row for an append of one row. Here a file of up to `UPLOAD_BYTES_MAX` is one PUT. Metadata (`.avro`,
`.metadata.json`) is read by one GET, and manifests and manifest lists are kept in memory for a while, those just
written included. They never change, because their names are unique; a file that another process has deleted may still
be read from here. `forget_files` ends that for a check. Data files are read by Arrow, as PyIceberg does.

`endive.catalog.file_io` imports this module when it is needed.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO, RawIOBase
from threading import Lock
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import obstore
from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from pyarrow.fs import resolve_s3_region
from pyiceberg.io import (
    AWS_ACCESS_KEY_ID,
    AWS_REGION,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    GCS_SERVICE_HOST,
    S3_ACCESS_KEY_ID,
    S3_ANONYMOUS,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_PROXY_URI,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    InputFile,
    InputStream,
    OutputFile,
    OutputStream,
)
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.utils.properties import property_as_bool

from endive.objects.remote import default_region, open_bucket

SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs"}
"""Schemes of locations, and obstore's name of the same."""

SETTINGS = {
    S3_REGION: "region",
    AWS_REGION: "region",
    S3_ACCESS_KEY_ID: "access_key_id",
    AWS_ACCESS_KEY_ID: "access_key_id",
    S3_SECRET_ACCESS_KEY: "secret_access_key",
    AWS_SECRET_ACCESS_KEY: "secret_access_key",
    S3_SESSION_TOKEN: "session_token",
    AWS_SESSION_TOKEN: "session_token",
}
"""PyIceberg's properties that are settings of obstore; the first of two names takes precedence."""

OTHER_PROPERTIES = {
    S3_ENDPOINT,
    S3_ANONYMOUS,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_CONNECT_TIMEOUT,
    S3_REQUEST_TIMEOUT,
    S3_PROXY_URI,
    GCS_SERVICE_HOST,
}
"""Further properties of PyIceberg that this FileIO knows."""

PREFIXES = ("s3.", "gcs.", "client.")

UPLOAD_BYTES_MAX = 8 * 1024 * 1024
"""Up to this size a file is one PUT; a larger one is a multipart upload with parts of this size."""
KEPT_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of manifests and manifest lists that are kept in memory, for each bucket."""
KEPT_FILE_BYTES_MAX = 4 * 1024 * 1024
"""Larger files are not kept."""
BUCKETS_MAX = 64
"""Buckets whose connections are kept."""


def supports(properties: Mapping[str, str], location: str) -> bool:
    """Whether this FileIO can reach a location as the properties ask; otherwise PyIceberg's own FileIO is used."""
    given = {name for name in properties if name.startswith(PREFIXES)}
    return location.partition("://")[0] in SCHEMES and given <= SETTINGS.keys() | OTHER_PROPERTIES


class KeptFiles:
    """Contents of files that never change, up to a number of bytes, least recently used first out."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._bytes_held = 0
        self._lock = Lock()

    def get(self, path: str) -> bytes | None:
        """Return the content of a file; None if it is not kept."""
        with self._lock:
            if path in self._bodies:
                self._bodies.move_to_end(path)
            return self._bodies.get(path)

    def keep(self, path: str, body: bytes) -> None:
        """Keep the content of a file, unless it is large."""
        if len(body) > KEPT_FILE_BYTES_MAX:
            return
        with self._lock:
            self._bytes_held += len(body) - len(self._bodies.pop(path, b""))
            self._bodies[path] = body
            while self._bytes_held > self._bytes_max:
                self._bytes_held -= len(self._bodies.popitem(last=False)[1])

    def forget(self, path: str | None = None) -> None:
        """Keep one file, or all of them, no longer."""
        with self._lock:
            if path is not None:
                self._bytes_held -= len(self._bodies.pop(path, b""))
            else:
                self._bodies.clear()
                self._bytes_held = 0


class Bucket:
    """The objects of a bucket, and the manifests that are kept in memory."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401 - obstore's stores share no type
        self.store = store
        self.kept = KeptFiles()

    def put(self, path: str, body: bytes) -> None:
        """Write a file by one request. The client may repeat it: no other process writes a file of this name."""
        with _errors(path):
            obstore.put(self.store, path, body, use_multipart=False)

    def get(self, path: str) -> bytes:
        """Return a file by one request."""
        with _errors(path):
            return bytes(obstore.get(self.store, path).bytes())

    def size(self, path: str) -> int:
        """Return the size of a file."""
        with _errors(path):
            return int(obstore.head(self.store, path)["size"])

    def delete(self, path: str) -> None:
        """Delete a file, by one request; no error if there is none."""
        self.kept.forget(path)
        with _errors(path):
            obstore.delete(self.store, path)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raise the errors that PyIceberg expects of a FileIO."""
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise FileNotFoundError(f"no such file: {path}") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(f"access denied: {path}: {error}") from error
    except BaseError as error:
        raise OSError(f"{path}: {error}") from error


_buckets: WeakSet[Bucket] = WeakSet()


@lru_cache(maxsize=BUCKETS_MAX)
def _bucket(url: str, properties: tuple[tuple[str, str], ...], pid: int) -> Bucket:  # noqa: ARG001 - part of the key
    """Return the bucket at a URL. All FileIO objects of a process share its connections; a fork cannot use them."""
    bucket = Bucket(_opened(url, dict(properties)))
    _buckets.add(bucket)
    return bucket


def _opened(url: str, given: Mapping[str, str]) -> Any:  # noqa: ANN401 - obstore's stores share no type
    """Return obstore's store of a bucket, with PyIceberg's properties."""
    settings: dict[str, Any] = {}
    for name, theirs in SETTINGS.items():
        if name in given:
            settings.setdefault(theirs, given[name])
    client: dict[str, Any] = {}
    timeouts = {"connect_timeout": S3_CONNECT_TIMEOUT, "timeout": S3_REQUEST_TIMEOUT}
    client |= {theirs: f"{float(given[name])}s" for theirs, name in timeouts.items() if name in given}
    if S3_PROXY_URI in given:
        client["proxy_url"] = given[S3_PROXY_URI]
    is_s3 = url.startswith("s3:")
    endpoint = given.get(S3_ENDPOINT if is_s3 else GCS_SERVICE_HOST)
    if not is_s3:
        return open_bucket(url, endpoint, {}, client)
    if property_as_bool(dict(given), S3_ANONYMOUS, False):
        settings["skip_signature"] = True
    if property_as_bool(dict(given), S3_FORCE_VIRTUAL_ADDRESSING, False):
        settings["virtual_hosted_style_request"] = True
    if "region" not in settings and default_region() is None and endpoint is None:
        settings["region"] = resolve_s3_region(urlsplit(url).netloc)  # as PyIceberg does
    return open_bucket(url, endpoint, settings, client)


class ObjectFileIO(PyArrowFileIO):
    """PyIceberg's default FileIO, except that metadata and everything written goes through obstore."""

    files_appear_whole = True
    """Every upload ends with one request that makes the object visible; also PyArrow's."""

    def bucket_of(self, location: str) -> tuple[Bucket, str] | None:
        """Return the bucket and the path of a location; None if obstore cannot name it."""
        parts = urlsplit(location)
        path = location.partition("://")[2].partition("/")[2]
        if parts.scheme not in SCHEMES or any(part in ("", ".", "..") for part in path.split("/")):
            return None
        given = {name: str(value) for name, value in self.properties.items() if name.startswith(PREFIXES)}
        return _bucket(f"{SCHEMES[parts.scheme]}://{parts.netloc}", tuple(sorted(given.items())), os.getpid()), path

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read; metadata by one request at most."""
        found = self.bucket_of(location) if _is_metadata(location) else None
        return super().new_input(location) if found is None else ObjectFile(location, *found)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write; by one request if it is small."""
        found = self.bucket_of(location)
        return super().new_output(location) if found is None else ObjectFile(location, *found)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file by one request; no error if there is none."""
        place = location if isinstance(location, str) else location.location
        found = self.bucket_of(place)
        if found is None:
            return super().delete(place)
        bucket, path = found
        return bucket.delete(path)


def forget_files() -> None:
    """Read every file from its bucket the next time, also those that this process has written."""
    for bucket in tuple(_buckets):
        bucket.kept.forget()


def _is_metadata(location: str) -> bool:
    return location.endswith((".avro", ".metadata.json"))


class ObjectFile(PyArrowFile):
    """A file in a bucket. Once it is written, its size is known without a request."""

    def __init__(self, location: str, bucket: Bucket, path: str) -> None:
        super().__init__(location, path, None)
        self._bucket = bucket
        self._size: int | None = None

    def __len__(self) -> int:
        if self._size is None:
            self._size = self._bucket.size(self._path)
        return self._size

    def exists(self) -> bool:
        """Whether the file exists. Always asks the bucket."""
        try:
            self._bucket.size(self._path)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - bytes in memory are always seekable
        """Return the content, from memory or by one request."""
        body = self._bucket.kept.get(self._path)
        if body is None:
            body = self._bucket.get(self._path)
            self._keep(body)
        return BytesIO(body)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream that writes the file when it is closed."""
        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        return _Upload(self)

    def write(self, body: bytes) -> None:
        """Write the whole file."""
        self._bucket.put(self._path, body)
        self.written(len(body))
        self._keep(body)

    def writer(self) -> Any:  # noqa: ANN401 - obstore's writer
        """Return a multipart upload."""
        return obstore.open_writer(self._bucket.store, self._path, buffer_size=UPLOAD_BYTES_MAX)

    def written(self, size: int) -> None:
        """Take note of the size of the file that was written."""
        self._size = size

    def _keep(self, body: bytes) -> None:
        if self._path.endswith(".avro"):
            self._bucket.kept.keep(self._path, body)


class _Upload(RawIOBase):
    """A file that is being written: in memory up to a size, and then in parts."""

    def __init__(self, file: ObjectFile) -> None:
        super().__init__()
        self._file = file
        self._buffer = BytesIO()
        self._writer: Any = None
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, body: Any) -> int:  # noqa: ANN401 - anything with bytes in it
        data = bytes(body)
        self._size += len(data)
        with _errors(self._file.location):
            if self._writer is None and self._size > UPLOAD_BYTES_MAX:
                self._writer = self._file.writer()
                self._writer.write(self._buffer.getvalue())
            if self._writer is not None:
                self._writer.write(data)
            else:
                self._buffer.write(data)
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._writer is None:
                self._file.write(self._buffer.getvalue())
            else:
                with _errors(self._file.location):
                    self._writer.close()
                self._file.written(self._size)
        finally:
            super().close()
