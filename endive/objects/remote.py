"""S3, Google Cloud Storage and Azure, through obstore.

obstore retries reads but not writes: a create that the client retries would find its own object and report that it
already exists. A write with an unclear result raises `OutcomeUnknownError`, and the protocol reads back.

obstore finds credentials in the environment, in Google's application default credentials, or in the metadata service
of the machine. AWS profiles (`~/.aws`) are read by `boto3`, if it is installed.
"""

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
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

from endive.errors import (
    ConfigurationError,
    EndiveError,
    OutcomeUnknownError,
    StorageAccessError,
    StorageUnavailableError,
)
from endive.objects.api import Capabilities, require_path
from endive.protocol.requests import ObjectInfo

SCHEMES = ("s3", "gs", "az")
_REFUSED = ("SlowDown", "TooManyRequests", "ServerBusy", "429 ", "503 ", "tcp connect error", "dns error")
"""Signs of a request that had no effect."""
_CREDENTIALS_SOUGHT = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "token request")
"""Signs of a failed request for credentials, which precedes the request itself: that had no effect."""
_REMEDIES = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with boto3 installed",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
RETRIES = 3
"""Of requests that may be repeated: reads, and writes of files that no other process writes."""
_HOPELESS = (
    "NoSuchBucket", "ContainerNotFound", "401 Unauthorized", "403 Forbidden", "507 Insufficient Storage",
    "QuotaExceeded", "ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "PermanentRedirect",
    "AuthorizationHeaderMalformed", "IllegalLocationConstraint", "Received redirect without LOCATION",
)  # fmt: skip
"""Signs of a request that was denied: it had no effect, and a retry does not help."""
_NO_BUCKET = re.compile("<Code>(NoSuchBucket|ContainerNotFound)</Code>")


def open_remote(url: str, endpoint: str | None = None, chosen: Mapping[str, str] | None = None) -> "RemoteStore":
    """Return the store at `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    `chosen`: obstore's settings, which take precedence over the environment.
    """
    parts = urlsplit(url)
    settings = {"prefix": parts.path.strip("/") or None, **(chosen or {})}
    reading = open_bucket(url, endpoint, settings, {}, RETRIES)
    writing = open_bucket(url, endpoint, settings, {}, 0)
    return RemoteStore(reading, writing, url, partial(open_remote, endpoint=endpoint, chosen=chosen))


def open_bucket(
    url: str,
    endpoint: str | None,
    settings: Mapping[str, Any],
    client_options: Mapping[str, Any],
    retries: int = RETRIES,
) -> Any:  # noqa: ANN401 - obstore's stores share no type
    """Return obstore's store of the bucket in a URL. `retries`: of every request that obstore may repeat."""
    parts = urlsplit(url)
    if not parts.netloc:
        raise ConfigurationError(url, ["the URL names no bucket"])
    arguments: dict[str, Any] = dict(settings)
    client = dict(client_options)
    if endpoint is not None:
        arguments["base_url" if parts.scheme == "gs" else "endpoint"] = endpoint
        client["allow_http"] = endpoint.startswith("http://")
    if client:
        arguments["client_options"] = client
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    if parts.scheme == "s3" and "access_key_id" not in arguments and not arguments.get("skip_signature"):
        arguments["credential_provider"] = credentials_of_aws(url)
    try:
        return kinds[parts.scheme](parts.netloc, **arguments, retry_config=_retries(retries))
    except BaseError as error:
        remedy = f"; {_REMEDIES[parts.scheme]}" if "must be specified" in str(error) else ""
        raise ConfigurationError(url, [_brief(error) + remedy]) from error


def default_region() -> str | None:
    """Return the region of the environment; None if it names none."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def credentials_of_aws(url: str) -> Any:  # noqa: ANN401 - obstore's type needs boto3
    """Return a provider of the profile's credentials; None without a profile, or with keys in the environment."""
    file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    if "AWS_ACCESS_KEY_ID" in os.environ or not ("AWS_PROFILE" in os.environ or file.is_file()):
        return None
    try:
        return importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider()
    except ImportError as error:
        raise ConfigurationError(url, ["AWS profiles are read by the package 'boto3'; install it"]) from error
    except Exception as error:  # botocore's errors have no common root that can be named without it
        raise ConfigurationError(url, [f"the AWS profile cannot be used: {error}"]) from error


def _retries(count: int) -> dict[str, Any]:
    backoff = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 2}
    return {"max_retries": count, "backoff": backoff, "retry_timeout": timedelta(seconds=10)}


class RemoteStore:
    """An object store through obstore. S3, Google Cloud Storage and Azure have conditional writes."""

    capabilities = Capabilities(create_if_absent=True, survives_power_loss=True, shared=True)

    def __init__(
        self,
        reading: Any,  # noqa: ANN401 - obstore's stores share no type
        writing: Any,  # noqa: ANN401
        url: str,
        sibling: "Callable[[str], RemoteStore]" = open_remote,
    ) -> None:
        self.sibling = sibling
        """Returns the store at another URL of any of these clouds, with the same settings."""
        self._reading_store = reading
        self._writing_store = writing
        self._has_answered = False
        self.url = url

    def get(self, path: str) -> bytes | None:
        with self._reading(path):
            try:
                return bytes(obstore.get(self._reading_store, require_path(path)).bytes())
            except (NotFoundError, FileNotFoundError) as error:
                _require_bucket(error)
                return None

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        with self._reading(path):
            try:
                return bytes(obstore.get_range(self._reading_store, require_path(path), start=start, length=length))
            except (NotFoundError, FileNotFoundError) as error:
                _require_bucket(error)
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
            except (NotFoundError, FileNotFoundError) as error:
                _require_bucket(error)

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise self._clear(path, error) or self._unavailable(path, error) from error
        self._has_answered = True

    @contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise self._clear(path, error) or OutcomeUnknownError(path) from error
        self._has_answered = True

    def _clear(self, path: str, error: Exception) -> EndiveError | None:
        """Return the error of a request that certainly had no effect; None if that is not certain."""
        said = str(error)
        if any(sign in said for sign in _CREDENTIALS_SOUGHT):
            # If there were credentials before, the failure to renew them is temporary.
            return self._unavailable(path, error) if self._has_answered else self._without_credentials(path)
        is_denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if is_denied or any(sign in said for sign in _HOPELESS):
            return StorageAccessError(f"{self.url}/{path}", _brief(error))
        return self._unavailable(path, error) if any(sign in said for sign in _REFUSED) else None

    def _unavailable(self, path: str, error: Exception) -> StorageUnavailableError:
        return StorageUnavailableError(f"{self.url}/{path}", _brief(error))

    def _without_credentials(self, path: str) -> StorageAccessError:
        remedy = _REMEDIES[urlsplit(self.url).scheme]
        return StorageAccessError(f"{self.url}/{path}", f"no credentials were found; {remedy}")


def _require_bucket(error: Exception) -> None:
    """Raise the error again if the bucket does not exist: then nothing is known about its objects."""
    if _NO_BUCKET.search(str(error)):
        raise error


def _brief(error: Exception) -> str:
    """Return the server's error code and the first line of a message that may contain a whole response."""
    said = str(error).strip()
    line = said.partition("\n")[0].partition("<")[0].rstrip(": ")[:300] or type(error).__name__
    code = re.search(r"<Code>(\w+)</Code>", said)
    return line if code is None else f"{code[1]}: {line}"
