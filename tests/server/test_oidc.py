"""Access tokens of an identity provider: keys, rotation, and tokens that must not pass."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import BadStatusLine, IncompleteRead
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Privilege
from endive.drivers.blocking import unix_ms
from endive.errors import ConfigurationError
from endive.server.access import Callers
from endive.server.access.oidc import Oidc, OidcSettings
from endive.server.access.tokens import new_token
from endive.server.application import Application
from endive.server.errors import HttpError
from tests.server.calls import answer

ISSUER, AUDIENCE = "https://id.example", "endive"
SETTINGS = OidcSettings(issuer=ISSUER, audience=AUDIENCE)
FIRST, SECOND = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


def now_s() -> int:
    return unix_ms() // 1000


def public(key: rsa.RSAPrivateKey, key_id: str, **more: str) -> dict[str, Any]:
    return {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig", **more}


class Provider:
    """An identity provider whose keys change."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [public(FIRST, "one", alg="RS256")]
        self.fetches: list[str] = []
        self.is_down = False
        self.now_s = 0.0

    def fetch(self, url: str) -> bytes:
        self.fetches.append(url)
        if self.is_down:
            raise OSError("no answer")
        if url.endswith("openid-configuration"):
            return json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode()
        return json.dumps({"keys": self.keys}).encode()

    def oidc(self, settings: OidcSettings = SETTINGS) -> Oidc:
        return Oidc(settings, self.fetch, lambda: self.now_s)


@pytest.fixture
def provider() -> Provider:
    return Provider()


def claims(**more: object) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now_s() + 300, **more}


def signed(key: Any = FIRST, key_id: str = "one", algorithm: str = "RS256", **more: object) -> str:
    return jwt.encode(claims(**more), key, algorithm, {"kid": key_id})


def test_a_signed_token_names_a_caller_with_groups(provider: Provider) -> None:
    found = provider.oidc().principal(signed(groups=["analysts", "ops", 7]))

    assert found is not None
    assert (found.name, found.groups, found.is_owner) == ("oidc:ada", ("oidc:analysts", "oidc:ops"), False)
    assert provider.fetches == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("groups", "analysts ops"),
        ("realm_access", {"roles": ["analysts", "ops"]}),
        ("https://x/groups", ["analysts", "ops"]),
    ],
)
def test_groups_come_from_any_claim(provider: Provider, claim: str, value: object) -> None:
    path = "realm_access.roles" if claim == "realm_access" else claim
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, groups=path, prefix="")
    found = provider.oidc(settings).principal(jwt.encode({**claims(), claim: value}, FIRST, "RS256", {"kid": "one"}))
    assert found is not None
    assert found.groups == ("analysts", "ops")


def test_a_name_must_be_text(provider: Provider) -> None:
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, name="email")
    assert provider.oidc(settings).principal(signed(email=7)) is None
    assert provider.oidc(settings).principal(signed()) is None
    found = provider.oidc(settings).principal(signed(email="ada@example.com"))
    assert found is not None
    assert found.name == "oidc:ada@example.com"


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _unsigned() -> str:
    return f"{_segment({'alg': 'none', 'typ': 'JWT', 'kid': 'one'})}.{_segment(claims())}."


def _confused() -> str:
    """A token with the provider's public key as the secret of an HMAC."""
    secret = FIRST.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{_segment({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{_segment(claims())}"
    digest = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _tampered() -> str:
    head, _, signature = signed().split(".")
    return f"{head}.{_segment(claims(sub='admin'))}.{signature}"


WRONG: dict[str, Callable[[], str]] = {
    "signed by another key": lambda: signed(SECOND),
    "without a signature": _unsigned,
    "a public key as the secret": _confused,
    "changed claims": _tampered,
    "expired": lambda: signed(exp=now_s() - 3600),
    "not yet valid": lambda: signed(nbf=now_s() + 3600),
    "without an expiry": lambda: jwt.encode(
        {k: v for k, v in claims().items() if k != "exp"}, FIRST, "RS256", {"kid": "one"}
    ),
    "another audience": lambda: signed(aud="elsewhere"),
    "without an audience": lambda: jwt.encode(
        {k: v for k, v in claims().items() if k != "aud"}, FIRST, "RS256", {"kid": "one"}
    ),
    "another issuer": lambda: signed(iss="https://evil.example"),
    "without a name": lambda: signed(sub=""),
    "an algorithm that the key does not have": lambda: signed(algorithm="RS512"),
    "an unknown key": lambda: signed(key_id="three"),
    "no key id": lambda: jwt.encode(claims(), FIRST, "RS256"),
    "a critical extension": lambda: jwt.encode(claims(), FIRST, "RS256", {"kid": "one", "crit": ["x"], "x": 1}),
    "too long": lambda: signed(padding="x" * 40_000),
    "nothing": lambda: "..",
    "no JSON": lambda: "a.b.c",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_token_does_not_pass(provider: Provider, wrong: str) -> None:
    assert provider.oidc().principal(WRONG[wrong]()) is None


def test_symmetric_and_encryption_keys_of_the_provider_are_ignored(provider: Provider) -> None:
    secret = b"s" * 32
    provider.keys = [
        {"kty": "oct", "kid": "one", "k": base64.urlsafe_b64encode(secret).decode().rstrip("="), "alg": "HS256"},
        {**public(SECOND, "two"), "use": "enc"},
    ]
    assert provider.oidc().principal(signed(secret, algorithm="HS256")) is None
    assert provider.oidc().principal(signed(SECOND, "two")) is None


def test_elliptic_keys_are_accepted(provider: Provider) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    provider.keys = [{**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": "e"}]

    assert provider.oidc().principal(signed(key, "e", "ES256")) is not None


def test_keys_are_rotated(provider: Provider) -> None:
    oidc = provider.oidc()
    assert oidc.principal(signed()) is not None
    provider.keys = [public(SECOND, "two", alg="RS256")]
    provider.now_s = 31

    assert oidc.principal(signed(SECOND, "two")) is not None  # an unknown key is looked for
    assert oidc.principal(signed()) is None  # the old one is gone


def test_unknown_keys_make_few_requests(provider: Provider) -> None:
    oidc = provider.oidc()
    for number in range(50):
        assert oidc.principal(signed(SECOND, f"unknown-{number}")) is None
    assert len(provider.fetches) == 2  # the configuration and the keys
    assert oidc.principal(signed()) is not None


def test_few_requests_with_unknown_keys_wait_for_the_provider(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that does not answer must not cost all threads: callers with known keys need them."""
    monkeypatch.setattr("endive.server.access.oidc.WAITING_MAX", 1)
    is_fetching, may_end = threading.Event(), threading.Event()
    fetch = provider.fetch

    def slow(url: str) -> bytes:
        is_fetching.set()
        assert may_end.wait(60)
        return fetch(url)

    monkeypatch.setattr(provider, "fetch", slow)
    oidc = provider.oidc()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(oidc.principal, signed())
        assert is_fetching.wait(60)
        with pytest.raises(HttpError, match="429"):
            oidc.principal(signed(SECOND, "unknown"))
        may_end.set()
        assert first.result() is not None
    assert oidc.principal(signed(SECOND, "unknown")) is None


@pytest.mark.parametrize("wrong", [BadStatusLine("garbage"), IncompleteRead(b"")])
def test_an_answer_of_the_provider_that_is_no_http_is_no_defect(provider: Provider, wrong: Exception) -> None:
    def broken(_url: str) -> bytes:
        raise wrong

    with pytest.raises(HttpError, match="503"):
        Oidc(SETTINGS, broken, lambda: 0.0).principal(signed())


def test_a_broken_key_does_not_hide_the_others(provider: Provider) -> None:
    provider.keys.insert(0, {"kty": "EC", "kid": "e", "crv": "P-256", "x": "AAAA", "y": "AAAA"})
    point = {name: base64.urlsafe_b64encode(b"\1" * 32).decode().rstrip("=") for name in ("x", "y")}
    provider.keys.insert(0, {"kty": "EC", "kid": "f", "crv": "P-256", **point})

    assert provider.oidc().principal(signed()) is not None


def test_known_keys_stay_while_the_provider_does_not_answer(provider: Provider) -> None:
    oidc = provider.oidc()
    assert oidc.principal(signed()) is not None
    provider.is_down = True
    provider.now_s = 3600
    assert oidc.principal(signed()) is not None
    provider.now_s = 2 * 86_400
    with pytest.raises(HttpError, match="503") as refused:
        oidc.principal(signed())
    assert refused.value.headers == {"retry-after": "30"}  # the keys are not asked for earlier


def test_the_configuration_of_another_issuer_is_not_followed(provider: Provider) -> None:
    other = OidcSettings(issuer="https://other.example", audience=AUDIENCE)
    with pytest.raises(HttpError, match="503"):
        provider.oidc(other).principal(signed(iss="https://other.example"))


def test_a_file_has_tokens_and_a_provider(tmp_path: Path, catalog: KVCatalog, provider: Provider) -> None:
    token, line = new_token("ada")
    file = tmp_path / "callers.toml"
    file.write_text(f'[tokens]\n{line}\n[groups]\nops = ["ada"]\n[oidc]\nissuer = "{ISSUER}"\naudience = "endive"\n')
    callers = Callers.load(file)
    callers._oidc = provider.oidc()
    application = Application({"lake": catalog}, callers)
    catalog.grants.grant(Grantee.parsed("oidc:ada"), [Privilege.READ])

    assert answer(application, "GET", "namespaces", authorization=f"Bearer {signed()}")[0] == 200
    assert answer(application, "GET", "config", authorization=f"Bearer {token}")[0] == 403  # another caller
    assert answer(application, "GET", "namespaces", authorization=f"Bearer {_confused()}")[0] == 401
    assert callers.principal({"authorization": f"Bearer {token}"}).groups == ("ops",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('[oidc]\nissuer = "https://x"\n', "audience: is missing"),
        ('[oidc]\nissuer = "http://x"\naudience = "a"\n', "not https"),
        ('[oidc]\nissuer = "https://x"\naudience = "a"\njwks = "ftp://x"\n', "not https"),
        ('[oidc]\nissuer = "https://x"\naudience = 7\n', "not text"),
        ('[oidc]\nissuer = "https://x"\naudience = "a"\nsecret = "s"\n', "no such key"),
        ("oidc = 7\n", "not a table"),
        ("", "no table"),
    ],
)
def test_a_wrong_file_of_callers_is_reported(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "callers.toml"
    file.write_text(content)

    with pytest.raises(ConfigurationError, match=problem):
        Callers.load(file)


def test_a_provider_of_this_machine_needs_no_tls(tmp_path: Path) -> None:
    file = tmp_path / "callers.toml"
    file.write_text('[oidc]\nissuer = "http://127.0.0.1:8080"\naudience = "endive"\n')
    assert Callers.load(file)
