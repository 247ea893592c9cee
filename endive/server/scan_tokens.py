"""Scan plans as tokens: the id of a plan holds the plan's request, so that any server of the bucket can answer it.

A snapshot never changes, so planning it again gives the same files in the same order. A token holds nothing but what
a client may ask for anyway: no signature is needed, and the caller's rights are checked by the table in the path.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec

TOKEN_BYTES_MAX = 1_000_000
"""Of a decoded token: no request has a larger filter."""


class PlanToken(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, or one page of it."""

    table: str
    """The table's uuid: after a drop and a new table of the same name the plan is gone."""
    snapshot: int | None
    start: int | None = None
    end: int | None = None
    filter: Any = None
    case_sensitive: bool = True
    snapshot_schema: bool = False
    statistics: tuple[str, ...] = ()
    page: int = 0

    def text(self) -> str:
        """Return the token for a path or a body."""
        return urlsafe_b64encode(zlib.compress(msgspec.json.encode(self))).decode().rstrip("=")

    @staticmethod
    def parsed(text: str) -> "PlanToken | None":
        """Return the plan of a token; None if it is none of this server's."""
        try:
            packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            body = zlib.decompressobj().decompress(packed, TOKEN_BYTES_MAX)
            return msgspec.json.decode(body, type=PlanToken)
        except (ValueError, zlib.error, msgspec.DecodeError, RecursionError):
            return None
