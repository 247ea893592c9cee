"""From a URL to an object store."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from endive.errors import ConfigurationError
from endive.objects.api import ObjectStore
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

    Credentials are found the way each cloud's own tools find them, unless `settings` names some (`access_key_id`,
    `secret_access_key`, `region`: obstore's names). `endpoint`: the address of an S3-compatible
    server, or of an emulator. `fsync`: a local directory confirms only what is on disk. `records`: for object stores
    without conditional writes, the URL of a record store that decides creates (`endive.objects.records`).
    """
    if records is not None:
        objects = open_objects(url, fsync, endpoint, settings=settings)
        return TwoPhaseStore(
            objects, open_records(records), lambda: os.urandom(16).hex(), lambda: time.time_ns() // 10**6
        )
    parts = urlsplit(url)
    openers: dict[str, Callable[[], ObjectStore]] = {
        "memory": MemoryStore,
        "file": lambda: LocalStore(Path(unquote(parts.path)), fsync),
        "": lambda: LocalStore(Path(url), fsync),
    }
    openers |= dict.fromkeys(SCHEMES, lambda: open_remote(url, endpoint, settings))
    if parts.scheme not in openers or not url:
        known = ", ".join(f"{scheme}://" for scheme in ("file", "memory", *SCHEMES))
        raise ConfigurationError(url, [f"not a place for objects; known: a directory, {known}"])
    return openers[parts.scheme]()
