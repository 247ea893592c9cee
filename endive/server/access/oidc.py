"""Callers by OpenID Connect: access tokens of an identity provider, checked with its published keys (JWKS).

A token is accepted if one of the provider's keys signed it, by an asymmetric algorithm of that key's own kind, and if
issuer, audience and times are right. So neither `alg: none` nor a token "signed" with a public key as an HMAC secret
passes: symmetric algorithms are not accepted, and symmetric keys in the set are ignored.

Keys are fetched when they are needed, again every ten minutes, and once more when a token names an unknown key, but not
more often than every half a minute: the provider may change its keys at any time, and unknown tokens must not make the
server a source of load. While the provider does not answer, the keys that are known stay valid for a day. Few requests
with unknown keys wait for it, others are told to come again: they would take all threads from callers with known keys.

Names and groups get a prefix: a user of the provider who is called like a token of the file is not that caller.
"""

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from ipaddress import ip_address
from threading import BoundedSemaphore, Lock
from time import monotonic
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import jwt

from endive.errors import ConfigurationError
from endive.server.access.principals import Principal
from endive.server.errors import HttpError, try_again

ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Algorithms by the kind of key. Symmetric ones are missing on purpose."""
REFRESH_S, UNKNOWN_KEY_S, KEPT_S = 600.0, 30.0, 86_400.0
LEEWAY_S = 60
"""Difference of clocks that is allowed."""
FETCH_TIMEOUT_S = 10.0
FETCH_BYTES_MAX = 1_000_000
WAITING_MAX = 32
"""Requests with an unknown key that wait for the provider at the same time."""
GROUPS_MAX = 200
TOKEN_BYTES_MAX = 32_768

Fetch = Callable[[str], bytes]


@dataclass(frozen=True, kw_only=True)
class OidcSettings:
    """The table `[oidc]` of the callers' file."""

    issuer: str
    audience: str
    jwks: str = ""
    """URL of the keys; empty: from the issuer's `/.well-known/openid-configuration`."""
    name: str = "sub"
    """The claim with the caller's name."""
    groups: str = "groups"
    """The claim with the caller's groups: a list, or names with blanks between them. A dot leads into an object."""
    prefix: str = "oidc:"
    """Put before names and groups."""

    @staticmethod
    def parsed(fields: object, source: str) -> "OidcSettings":
        """Return the settings of a table; raise with all errors in it."""
        known = set(OidcSettings.__dataclass_fields__)
        if not isinstance(fields, dict):
            raise ConfigurationError(source, ["oidc: not a table"])
        problems = [f"oidc.{name}: no such key; known: {', '.join(sorted(known))}" for name in fields.keys() - known]
        problems += [f"oidc.{name}: not text" for name, value in fields.items() if not isinstance(value, str)]
        problems += [f"oidc.{name}: is missing" for name in ("issuer", "audience") if not fields.get(name)]
        problems += [
            f"oidc.{name}: {fields[name]} is not https://: its answer could be forged on the way"
            for name in ("issuer", "jwks")
            if isinstance(fields.get(name), str) and fields[name] and not _is_safe(fields[name])
        ]
        if problems:
            raise ConfigurationError(source, sorted(problems))
        return OidcSettings(**fields)


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "http":  # of this machine only
        try:
            return ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return parts.hostname == "localhost"
    return parts.scheme == "https" and bool(parts.hostname)


class NoRedirect(HTTPRedirectHandler):
    """Raises for a redirect: its place was not checked."""

    def redirect_request(self, *_args: Any) -> None:  # noqa: ANN401 - the signature is urllib's
        return None


def fetched(url: str) -> bytes:
    """Return the body of a URL; redirects are not followed."""
    opener = build_opener(NoRedirect(), HTTPSHandler(context=ssl.create_default_context()))
    with opener.open(Request(url, headers={"accept": "application/json"}), timeout=FETCH_TIMEOUT_S) as answer:  # noqa: S310 - checked by _is_safe
        return bytes(answer.read(FETCH_BYTES_MAX))


@dataclass(frozen=True)
class Key:
    """A key of the provider."""

    key: Any
    """As the library has it."""
    algorithms: tuple[str, ...]


class Keys:
    """The provider's keys by their ids. Safe to use from many threads."""

    def __init__(self, settings: OidcSettings, fetch: Fetch, clock_s: Callable[[], float]) -> None:
        self._settings = settings
        self._fetch = fetch
        self._clock_s = clock_s
        self._lock = Lock()
        self._waiting = BoundedSemaphore(WAITING_MAX)
        self._keys: dict[str, Key] = {}
        self._tried_at_s: float | None = None
        self._fetched_at_s: float | None = None

    def find(self, key_id: str) -> "Key | None":
        """Return a key; None if the provider has none of this id."""
        key = self._keys.get(key_id)
        if key is None:
            self._wait_for_keys()
        elif self._age_s() > REFRESH_S and self._lock.acquire(blocking=False):
            try:  # one request fetches, and the others go on with the known key
                self._refresh()
            finally:
                self._lock.release()
        if self._age_s() > KEPT_S:
            raise HttpError(
                503,
                "ServiceUnavailableException",
                "The identity provider's keys cannot be fetched; nothing was done",
                {"retry-after": f"{UNKNOWN_KEY_S:.0f}"},
            )
        return self._keys.get(key_id)

    def _wait_for_keys(self) -> None:
        if self._was_tried() and not self._lock.locked():
            return
        if not self._waiting.acquire(blocking=False):
            raise try_again("The identity provider's keys are being fetched; nothing was done")
        try:
            with self._lock:
                self._refresh()
        finally:
            self._waiting.release()

    def _age_s(self) -> float:
        return float("inf") if self._fetched_at_s is None else self._clock_s() - self._fetched_at_s

    def _was_tried(self) -> bool:
        return self._tried_at_s is not None and self._clock_s() - self._tried_at_s < UNKNOWN_KEY_S

    def _refresh(self) -> None:
        if self._was_tried():
            return
        self._tried_at_s = now_s = self._clock_s()
        try:
            self._keys = _usable(json.loads(self._fetch(self._url())))
            self._fetched_at_s = now_s
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError):
            return  # the known keys stay

    def _url(self) -> str:
        if self._settings.jwks:
            return self._settings.jwks
        place = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = json.loads(self._fetch(place))
        if found["issuer"].rstrip("/") != self._settings.issuer.rstrip("/") or not _is_safe(found["jwks_uri"]):
            raise ValueError("the configuration is of another issuer, or its keys are not behind https://")
        return str(found["jwks_uri"])


def _usable(document: Mapping[str, Any]) -> dict[str, Key]:
    found = {}
    for each in document["keys"]:
        kind = each.get("kty")
        if kind in ALGORITHMS and each.get("use", "sig") == "sig" and each.get("kid"):
            allowed = tuple(one for one in ALGORITHMS[kind] if each.get("alg", one) == one)
            try:
                found[str(each["kid"])] = Key(jwt.PyJWK(each).key, allowed)
            except jwt.PyJWTError:
                continue  # of a kind that this library does not know
    return found


class Oidc:
    """Finds callers by access tokens of an identity provider."""

    def __init__(
        self, settings: OidcSettings, fetch: Fetch = fetched, clock_s: Callable[[], float] = monotonic
    ) -> None:
        self._settings = settings
        self._keys = Keys(settings, fetch, clock_s)

    def principal(self, token: str) -> Principal | None:
        """Return the caller of a token; None if it is not valid."""
        if len(token) > TOKEN_BYTES_MAX:
            return None
        try:
            claims = self._claims(token)
        except jwt.PyJWTError:
            return None
        name = claims.get(self._settings.name)
        if not isinstance(name, str) or not name:
            return None
        groups = tuple(self._settings.prefix + one for one in _groups(claims, self._settings.groups))
        return Principal(self._settings.prefix + name, groups)

    def _claims(self, token: str) -> Mapping[str, Any]:
        head = jwt.get_unverified_header(token)
        key = self._keys.find(str(head.get("kid", "")))
        if key is None or head.get("crit"):
            raise jwt.InvalidTokenError("its key is not known")
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            audience=self._settings.audience,
            issuer=self._settings.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud"]},
        )
        return claims


def _groups(claims: Mapping[str, Any], path: str) -> tuple[str, ...]:
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
    names = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
    return tuple(one for one in names if isinstance(one, str) and one)[:GROUPS_MAX]
