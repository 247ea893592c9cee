"""Temporary keys from AWS STS, or a server that speaks its protocol: AssumeRole with a session policy for one table.

Keys are kept for their caller and table until a quarter of their time is left, so that a client that loads a table
often costs few requests. They are never logged, and never written anywhere.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from endive.drivers.blocking import unix_ms
from endive.errors import ConfigurationError
from endive.extras import naming_extra
from endive.server.errors import try_again
from endive.server.storage.folders import Folder
from endive.server.storage.policy import session_policy

DURATION_S = 3600
"""How long keys are valid: also how long a revoked privilege lasts for a client that has keys."""
KEPT_MAX = 10_000
ROLE = re.compile(r"arn:(aws[a-z-]*):iam::[^:]*:role/.+")

Assume = Callable[..., Mapping[str, Any]]
"""`assume_role` of boto3's client."""


@dataclass(frozen=True)
class Keys:
    """Temporary keys. Its text does not show them."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_unix_ms: int

    @property
    def config(self) -> dict[str, str]:
        """The properties by which Iceberg's clients use them."""
        return {
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.session-token": self.session_token,
            "s3.session-token-expires-at-ms": str(self.expires_unix_ms),
        }


class Vending:
    """Gets keys for tables. Safe to use from many threads."""

    def __init__(self, role: str, assume: Assume, clock: Callable[[], int] = unix_ms) -> None:
        found = ROLE.fullmatch(role)
        if found is None:
            raise ConfigurationError("--vend-role", [f"{role!r} is not the ARN of a role, arn:aws:iam::…:role/…"])
        self._role = role
        self._partition = found[1]
        self._assume = assume
        self._clock = clock
        self._lock = Lock()
        self._kept: dict[tuple[str, tuple[Folder, ...], bool], Keys] = {}

    @classmethod
    def with_boto3(cls, role: str, endpoint: str | None, properties: Mapping[str, str]) -> "Vending":
        """Return a vending with boto3's STS client, by the catalog's keys or those of the machine."""
        with naming_extra("aws"):
            import boto3  # noqa: PLC0415 - an extra, which most servers do without
        client = boto3.client(
            "sts",
            endpoint_url=endpoint,
            region_name=properties.get("s3.region") or properties.get("client.region") or "us-east-1",
            aws_access_key_id=properties.get("s3.access-key-id"),
            aws_secret_access_key=properties.get("s3.secret-access-key"),
            aws_session_token=properties.get("s3.session-token"),
        )
        return cls(role, client.assume_role)

    def keys(self, caller: str, folders: Sequence[Folder], writes: bool) -> Keys:
        """Return keys for a table's folders: to read, or also to write."""
        place = caller, tuple(folders), writes
        with self._lock:
            kept = self._kept.get(place)
        if kept is not None and kept.expires_unix_ms - self._clock() > DURATION_S * 250:
            return kept
        keys = self._ask(caller, folders, writes)
        with self._lock:
            self._kept.pop(place, None)
            self._kept[place] = keys
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        return keys

    def _ask(self, caller: str, folders: Sequence[Folder], writes: bool) -> Keys:
        try:
            answer = self._assume(
                RoleArn=self._role,
                RoleSessionName=re.sub(r"[^\w+=,.@-]", "_", f"endive-{caller}", flags=re.ASCII)[:64],
                Policy=session_policy(folders, writes, self._partition),
                DurationSeconds=DURATION_S,
            )
            found = answer["Credentials"]
            expires_unix_ms = int(found["Expiration"].timestamp() * 1000)
            return Keys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], expires_unix_ms)
        except Exception as error:  # boto3 makes its error classes at run time
            raise try_again(f"No keys for the table's files could be had: {type(error).__name__}") from error
