"""Opening an object store by its URL."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from endive.errors import ConfigurationError
from endive.objects.api import ObjectStore, unix_ms
from endive.objects.local import LocalStore
from endive.objects.memory import MemoryStore
from endive.objects.records import open_records
from endive.objects.remote import SCHEMES, open_remote
from endive.objects.two_phase import TwoPhaseStore


def open_objects(
    url: str,
    fsync: bool = True,
    endpoint: str | None = None,
    records: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> ObjectStore:
    """Return the store at `url`: `memory://`, `file:///dir` or a path, `s3://bucket/prefix`, `gs://…`, `az://…`.

    Credentials come from where each cloud's own tools find them, unless `settings` has them (`access_key_id`,
    `secret_access_key`, `region`: obstore's names). `endpoint` is the address of an S3-compatible server or of an
    emulator. `fsync`: a local directory confirms only writes that are on disk. `records` is for object stores without
    conditional writes: the URL of a record store that provides them (`endive.objects.records`).
    """
    if records is not None:
        objects = open_objects(url, fsync, endpoint, settings=settings)
        return TwoPhaseStore(objects, open_records(records), lambda: os.urandom(16).hex(), unix_ms)
    parts = urlsplit(url)
    openers: dict[str, Callable[[], ObjectStore]] = {
        "memory": MemoryStore,
        "file": lambda: LocalStore(Path(unquote(parts.path)), fsync),
        "": lambda: LocalStore(Path(url), fsync),
    }
    openers |= dict.fromkeys(SCHEMES, lambda: open_remote(url, endpoint, settings))
    if parts.scheme not in openers or not url:
        known = ", ".join(f"{scheme}://" for scheme in ("file", "memory", *SCHEMES))
        raise ConfigurationError(url, [f"not the URL of an object store; use a directory, {known}"])
    return openers[parts.scheme]()
