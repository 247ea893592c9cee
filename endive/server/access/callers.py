"""The callers of a server: tokens of a file, and access tokens of an identity provider."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from endive.errors import ConfigurationError
from endive.server.access.oidc import Oidc, OidcSettings
from endive.server.access.principals import Principal
from endive.server.access.tokens import Tokens, bearer, refused


class Authenticator(Protocol):
    """Finds the caller of a request."""

    def principal(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller of a request; 401 without a valid token."""
        ...


class Callers:
    """Callers by the tokens of a file, by an identity provider, or by both."""

    def __init__(self, tokens: Tokens | None, oidc: Oidc | None) -> None:
        self._tokens = tokens
        self._oidc = oidc

    @classmethod
    def load(cls, path: Path) -> "Callers":
        """Return the callers in a TOML file: a table `tokens`, perhaps with `groups`, or a table `oidc`, or both."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(str(path), [f"cannot be read: {error}"]) from error
        settings = OidcSettings.parsed(content.pop("oidc"), str(path)) if "oidc" in content else None
        tokens = Tokens.parsed(content, str(path)) if content or settings is None else None
        return cls(tokens, Oidc(settings) if settings is not None else None)

    def principal(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller of a request; 401 without a valid token."""
        token = bearer(headers)
        found = self._tokens.find(token) if self._tokens is not None else None
        if found is None and self._oidc is not None and token.count(".") == 2:
            found = self._oidc.principal(token)
        if found is None:
            raise refused("The bearer token is not known, or no longer valid")
        return found
