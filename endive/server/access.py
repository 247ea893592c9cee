"""Bearer tokens: who a caller is.

Only hashes of tokens are kept, and they are compared in constant time. Tokens are drawn here, with 256 random bits, so
a plain SHA-256 is enough: there is nothing to guess.
"""

import hashlib
import hmac
import json
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from endive.errors import ConfigurationError
from endive.server.errors import HttpError

SCHEME = "bearer "
PREFIX = "sha256:"
HASH = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Principal:
    """A caller."""

    name: str


ANYBODY = Principal("anybody")
"""The caller of a server without authentication."""


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
    def one(cls, token: str, name: str = "owner") -> "Tokens":
        """Return the tokens of a server with one caller."""
        return cls({hashed(token): Principal(name)})

    @classmethod
    def load(cls, path: Path) -> "Tokens":
        """Return the tokens in a TOML file: a table `tokens` of names and hashes, `ada = "sha256:…"`."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(str(path), [f"cannot be read: {error}"]) from error
        found = content.get("tokens")
        if not isinstance(found, dict) or not found:
            raise ConfigurationError(str(path), ['there is no table [tokens] with lines such as `ada = "sha256:…"`'])
        wrong = [
            f'{name}: not "sha256:" and 64 hexadecimal digits; `endive serve --new-token {name}` makes one'
            for name, value in found.items()
            if not (isinstance(value, str) and HASH.fullmatch(value))
        ]
        unknown = [f"{name}: no such table or key" for name in content if name != "tokens"]
        if wrong or unknown:
            raise ConfigurationError(str(path), wrong + unknown)
        return cls({value.removeprefix(PREFIX): Principal(name) for name, value in found.items()})

    def principal(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller of a request; 401 without a known token."""
        given = headers.get("authorization", "")
        if not given.lower().startswith(SCHEME):
            raise _refused("A bearer token is missing")
        digest = hashed(given[len(SCHEME) :].strip())
        found = None
        for known, principal in self._principals.items():  # all of them: the time says nothing about which one matched
            if hmac.compare_digest(known, digest):
                found = principal
        if found is None:
            raise _refused("The bearer token is not known")
        return found


def _refused(message: str) -> HttpError:
    return HttpError(401, "NotAuthorizedException", message, {"www-authenticate": 'Bearer realm="endive"'})
