"""S3, Google Cloud Storage and Azure, through obstore.

Reads are retried by obstore, writes are not: a create that the client sends again by itself would find its own object
and say that somebody else was first. Whatever is not clear is reported as unknown, and settled by the protocol.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from endive.errors import ConfigurationError, OutcomeUnknownError, StorageAccessError, StorageUnavailableError
from endive.objects.api import Capabilities, require_path
from endive.protocol.requests import ObjectInfo

SCHEMES = ("s3", "gs", "az")
_REFUSED = ("SlowDown", "TooManyRequests", "ServerBusy", "429 ", "503 ", "tcp connect error", "dns error")
"""Answers that say that nothing was done."""
_HOPELESS = ("NoSuchBucket", "ContainerNotFound", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied")


def open_remote(url: str, endpoint: str | None = None, chosen: Mapping[str, str] | None = None) -> "RemoteStore":
    """Return the store at `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    `chosen`: obstore's settings that are not to be found in the environment.
    """
    parts = urlsplit(url)
    if not parts.netloc:
        raise ConfigurationError(url, ["the URL names no bucket"])
    settings: dict[str, Any] = {"prefix": parts.path.strip("/") or None, **(chosen or {})}
    if endpoint is not None:
        settings["endpoint"] = endpoint
        settings["client_options"] = {"allow_http": endpoint.startswith("http://")}
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        reading = kinds[parts.scheme](parts.netloc, **settings, retry_config=_retries(3))
        writing = kinds[parts.scheme](parts.netloc, **settings, retry_config=_retries(0))
    except BaseError as error:
        raise ConfigurationError(url, [_brief(error)]) from error
    return RemoteStore(reading, writing, url)


def _retries(count: int) -> dict[str, Any]:
    backoff = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 2}
    return {"max_retries": count, "backoff": backoff, "retry_timeout": timedelta(seconds=10)}


class RemoteStore:
    """An obstore store. Conditional writes are known to hold on S3, Google Cloud Storage and Azure."""

    capabilities = Capabilities(create_if_absent=True, survives_power_loss=True, shared=True)

    def __init__(self, reading: Any, writing: Any, url: str) -> None:  # noqa: ANN401 - obstore's stores share no type
        self._reading_store = reading
        self._writing_store = writing
        self.url = url

    def get(self, path: str) -> bytes | None:
        with self._reading(path):
            try:
                return bytes(obstore.get(self._reading_store, require_path(path)).bytes())
            except (NotFoundError, FileNotFoundError):
                return None

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        with self._reading(path):
            try:
                return bytes(obstore.get_range(self._reading_store, require_path(path), start=start, length=length))
            except (NotFoundError, FileNotFoundError):
                return None

    def put_if_absent(self, path: str, body: bytes) -> bool:
        with self._writing(path):
            try:
                obstore.put(self._writing_store, require_path(path), body, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def put(self, path: str, body: bytes) -> None:
        with self._writing(path):
            obstore.put(self._writing_store, require_path(path), body)

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        directory, _, rest = prefix.rpartition("/")
        with self._reading(prefix):
            pages = obstore.list(self._reading_store, directory or None, offset=after or None)
            found = [
                ObjectInfo(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
                for page in pages
                for meta in page
            ]
        kept = [info for info in found if info.path.startswith(prefix) and info.path > after]
        return tuple(sorted(kept, key=lambda info: info.path)) if rest or kept else ()

    def delete(self, path: str) -> None:
        with self._writing(path):
            try:
                obstore.delete(self._writing_store, require_path(path))
            except (NotFoundError, FileNotFoundError):
                return

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise self._hopeless(path, error) or StorageUnavailableError(f"{self.url}/{path}", _brief(error)) from error

    @contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            hopeless = self._hopeless(path, error)
            if hopeless is not None:
                raise hopeless from error
            if any(sign in str(error) for sign in _REFUSED):
                raise StorageUnavailableError(f"{self.url}/{path}", _brief(error)) from error
            raise OutcomeUnknownError(path) from error

    def _hopeless(self, path: str, error: Exception) -> StorageAccessError | None:
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if refused or any(sign in str(error) for sign in _HOPELESS):
            return StorageAccessError(f"{self.url}/{path}", _brief(error))
        return None


def _brief(error: Exception) -> str:
    """Return the first line of a message that may hold a whole server's answer."""
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
