"""Bearer tokens of a file.

Only hashes of tokens are kept, and they are compared in constant time. Tokens are drawn here, with 256 random bits, so
a plain SHA-256 is enough: there is nothing to guess.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from endive.errors import ConfigurationError
from endive.server.access.principals import OWNER, Principal
from endive.server.errors import HttpError

SCHEME = "bearer "
PREFIX = "sha256:"
HASH = re.compile(r"sha256:[0-9a-f]{64}")


def hashed(token: str) -> str:
    """Return the hash of a token, as it stands in a file of tokens."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(name: str) -> tuple[str, str]:
    """Return a new token, and the line of a tokens' file that accepts it."""
    token = secrets.token_urlsafe(32)
    return token, f'{json.dumps(name)} = "{PREFIX}{hashed(token)}"'


class Tokens:
    """The tokens that a server accepts: hashes and the principals that have them."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = dict(principals)

    @classmethod
    def one(cls, token: str) -> "Tokens":
        """Return the tokens of a server with one caller, which may do everything."""
        return cls({hashed(token): OWNER})

    @classmethod
    def parsed(cls, content: Mapping[str, Any], source: str) -> "Tokens":
        """Return the tokens in a file's content: a table `tokens` of names and hashes, `ada = "sha256:…"`.

        A table `groups` may have lists of names: `analysts = ["ada"]`.
        """
        found = content.get("tokens")
        if not isinstance(found, dict) or not found:
            raise ConfigurationError(source, ['there is no table [tokens] with lines such as `ada = "sha256:…"`'])
        wrong = [
            f'{name}: not "sha256:" and 64 hexadecimal digits; `endive serve --new-token {name}` makes one'
            for name, value in found.items()
            if not (isinstance(value, str) and HASH.fullmatch(value))
        ]
        groups = content.get("groups", {})
        wrong += _wrong_groups(groups, found)
        wrong += [f"{name}: no such table or key" for name in content if name not in {"tokens", "groups"}]
        twice = {value for value in found.values() if list(found.values()).count(value) > 1}
        wrong += [f"{name}: another name has the same hash" for name, value in found.items() if value in twice]
        if wrong:
            raise ConfigurationError(source, wrong)
        return cls(
            {
                value.removeprefix(PREFIX): Principal(name, tuple(one for one in groups if name in groups[one]))
                for name, value in found.items()
            }
        )

    def find(self, token: str) -> Principal | None:
        """Return the caller of a token; None if it is not known."""
        digest = hashed(token)
        found = None
        for known, principal in self._principals.items():  # all of them: the time says nothing about which one matched
            if hmac.compare_digest(known, digest):
                found = principal
        return found

    def principal(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller of a request; 401 without a known token."""
        found = self.find(bearer(headers))
        if found is None:
            raise refused("The bearer token is not known")
        return found


def bearer(headers: Mapping[str, str]) -> str:
    """Return the bearer token of a request; 401 without one."""
    given = headers.get("authorization", "")
    if not given.lower().startswith(SCHEME):
        raise refused("A bearer token is missing")
    return given[len(SCHEME) :].strip()


def _wrong_groups(groups: object, names: Mapping[str, object]) -> list[str]:
    if not isinstance(groups, dict):
        return ['groups: not a table with lines such as `analysts = ["ada"]`']
    problems = [
        f"groups.{group}: not a list of names" for group, members in groups.items() if not isinstance(members, list)
    ]
    return problems or [
        f"groups.{group}: {member!r} has no line in [tokens]"
        for group, members in groups.items()
        for member in members
        if member not in names
    ]


def refused(message: str) -> HttpError:
    """Return the error of a request without a valid token."""
    return HttpError(401, "NotAuthorizedException", message, {"www-authenticate": 'Bearer realm="endive"'})
