"""Keys and signatures for a table's files: for its own folders, by privilege, and never the server's own keys."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Privilege
from endive.errors import ConfigurationError
from endive.server.access import Principal, Tokens, hashed
from endive.server.application import Application
from endive.server.configuration import client_properties
from endive.server.errors import HttpError
from endive.server.storage.delegation import Delegation
from endive.server.storage.folders import Folder, folders_of
from endive.server.storage.policy import session_policy
from endive.server.storage.signing import Signer
from endive.server.storage.vending import DURATION_S, Keys, Vending
from tests.server.calls import SCHEMA, answer, send
from tests.servers.conftest import KNOWN_KEYS, keyed_bucket, locked_s3_endpoint  # noqa: F401 - fixtures

READ, WRITE, CREATE, MANAGE = Privilege
ROLE = "arn:aws:iam::123456789012:role/lake"
FOLDERS = (Folder("lake", "db/orders-1234"),)


class StandIn:
    """STS as far as AssumeRole goes."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def assume(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        number = len(self.asked)
        return {
            "Credentials": {
                "AccessKeyId": f"temporary-{number}",
                "SecretAccessKey": "temporary-secret",
                "SessionToken": "session",
                "Expiration": datetime.fromtimestamp(DURATION_S * number, UTC),
            }
        }


def test_a_policy_reaches_the_tables_folder_only() -> None:
    policy = json.loads(session_policy(FOLDERS, writes=False))
    objects, listing = policy["Statement"]

    assert objects["Resource"] == ["arn:aws:s3:::lake/db/orders-1234/*"]
    assert all(one.startswith("s3:Get") for one in objects["Action"])
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["db/orders-1234/*"]}}
    writing = json.loads(session_policy(FOLDERS, writes=True, partition="aws-cn"))["Statement"][0]
    assert {"s3:PutObject", "s3:DeleteObject"} <= set(writing["Action"])
    assert writing["Resource"] == ["arn:aws-cn:s3:::lake/db/orders-1234/*"]


def test_keys_are_kept_for_their_caller_and_table() -> None:
    sts, now = StandIn(), [0]
    vending = Vending(ROLE, sts.assume, lambda: now[0])

    first = vending.keys("ada", FOLDERS, writes=False)
    assert vending.keys("ada", FOLDERS, writes=False) is first
    assert vending.keys("ada", FOLDERS, writes=True) is not first
    assert vending.keys("bob", FOLDERS, writes=False) is not first
    assert len(sts.asked) == 3
    now[0] = DURATION_S * 800  # a fifth of the time is left
    assert vending.keys("ada", FOLDERS, writes=False) is not first
    assert sts.asked[0]["RoleSessionName"] == "endive-ada"


def test_keys_are_not_in_their_text() -> None:
    assert "secret" not in repr(Keys("id", "secret", "secret-session", 7))


def test_an_sts_that_fails_says_nothing_of_keys() -> None:
    def fail(**_asked: object) -> dict[str, Any]:
        raise RuntimeError("secret-in-message")

    with pytest.raises(HttpError) as caught:
        Vending(ROLE, fail).keys("ada", FOLDERS, writes=False)
    assert (caught.value.status, "secret" in str(caught.value)) == (429, False)


def test_a_role_must_be_an_arn() -> None:
    with pytest.raises(ConfigurationError, match="not the ARN"):
        Vending("lake", StandIn().assume)


@pytest.mark.parametrize(
    "location", ["s3://b", "s3://b/", "s3://b/*", "s3://b/a?x", "s3://b/a/../c", "s3://b/${aws:x}"]
)
def test_no_keys_for_folders_that_would_widen_a_policy(location: str) -> None:
    with pytest.raises(HttpError) as caught:
        folders_of(location, {})
    assert caught.value.status in (403, 406)


def test_folders_that_properties_name_belong_to_a_table() -> None:
    inner = {"write.metadata.path": "s3://b/t/metadata", "write.data.path": "s3://data/t"}
    assert folders_of("s3://b/t", inner) == (Folder("b", "t"), Folder("data", "t"))


def test_only_properties_that_find_files_are_sent_to_clients() -> None:
    secrets = ("s3.secret-access-key", "s3.sse.key", "s3.proxy-uri", "adls.connection-string", "gcs.encryption-key")
    found = client_properties(dict.fromkeys((*secrets, "s3.endpoint", "s3.region"), "x"))
    assert found.keys() == {"s3.endpoint", "s3.region", "s3.path-style-access", "client.region"}


# Signing.

ENDPOINT = "http://127.0.0.1:9000"


class FixedKeys:
    """botocore's interface for keys."""

    access_key, secret_key, token = "known", "secret", None

    def get_frozen_credentials(self) -> "FixedKeys":
        return self


def signer(endpoint: str = ENDPOINT) -> Signer:
    return Signer(endpoint, "us-east-1", FixedKeys())


SIGNED = [
    ("GET", f"{ENDPOINT}/lake/db/orders-1234/data/a.parquet"),
    ("HEAD", f"{ENDPOINT}/lake/db/orders-1234/data/a%20b.parquet"),
    ("PUT", f"{ENDPOINT}/lake/db/orders-1234/data/a.parquet?partNumber=1&uploadId=x"),
    ("POST", f"{ENDPOINT}/lake/db/orders-1234/data/a.parquet?uploads="),
    ("DELETE", f"{ENDPOINT}/lake/db/orders-1234/data/a.parquet"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=db%2Forders-1234%2Fdata"),
    ("GET", f"{ENDPOINT}/lake/?list-type=2&prefix=db/orders-1234/"),
]
REFUSED = [
    ("GET", f"{ENDPOINT}/lake/db/orders-12345/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/db/orders-1234"),
    ("GET", f"{ENDPOINT}/lake/db/orders-1234/../other/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/db/orders-1234/%2e%2e/other/a.parquet"),
    ("GET", f"{ENDPOINT}/other/db/orders-1234/a.parquet"),
    ("GET", f"{ENDPOINT}/lake/db/orders-1234/a.parquet?acl"),
    ("PUT", f"{ENDPOINT}/lake/db/orders-1234/a.parquet?tagging"),
    ("PUT", f"{ENDPOINT}/lake?policy"),
    ("DELETE", f"{ENDPOINT}/lake"),
    ("GET", f"{ENDPOINT}/lake?list-type=2"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=db/"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=db/orders-1234/&prefix=other/"),
    ("POST", f"{ENDPOINT}/lake?delete"),
    ("GET", "http://evil.example/lake/db/orders-1234/a.parquet"),
    ("GET", "http://127.0.0.1:9001/lake/db/orders-1234/a.parquet"),
    ("GET", "http://x@127.0.0.1:9000/lake/db/orders-1234/a.parquet"),
    ("PATCH", f"{ENDPOINT}/lake/db/orders-1234/a.parquet"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=db/orders-1234/../other/"),
    ("GET", f"{ENDPOINT}/lake?list-type=2&prefix=db/orders-1234/%2e%2e/other/"),
    ("GET", "http://127.0.0.1:x/lake/db/orders-1234/a.parquet"),
    ("GET", "http://127.0.0.1:99999/lake/db/orders-1234/a.parquet"),
    ("GET", "http://[/lake/db/orders-1234/a.parquet"),
]


@pytest.mark.parametrize(("method", "uri"), SIGNED)
def test_requests_for_a_tables_files_are_signed(method: str, uri: str) -> None:
    found = signer().sign(method, uri, {"x-amz-meta-a": ["1"]}, None, FOLDERS)
    headers = {name.lower(): value for name, value in found.headers.items()}

    assert headers["authorization"][0].startswith("AWS4-HMAC-SHA256 Credential=known/")
    assert "secret" not in json.dumps(found.headers)


@pytest.mark.parametrize(("method", "uri"), REFUSED)
def test_other_requests_are_not_signed(method: str, uri: str) -> None:
    with pytest.raises(HttpError) as caught:
        signer().sign(method, uri, {}, None, FOLDERS)
    assert caught.value.status == 403


@pytest.mark.parametrize("header", ["x-amz-copy-source", "X-Amz-Acl", "x-amz-grant-read", "x-amz-tagging"])
def test_headers_that_reach_elsewhere_are_not_signed(header: str) -> None:
    with pytest.raises(HttpError, match="403"):
        signer().sign("PUT", f"{ENDPOINT}/lake/db/orders-1234/a", {header: ["/lake/db/other/a"]}, None, FOLDERS)


def test_a_deletion_of_many_is_bound_to_its_body() -> None:
    uri = f"{ENDPOINT}/lake?delete"
    body = "<Delete><Object><Key>db/orders-1234/{}</Key></Object></Delete>"
    signed = {
        name.lower(): value for name, value in signer().sign("POST", uri, {}, body.format("a"), FOLDERS).headers.items()
    }

    assert len(signed["x-amz-content-sha256"][0]) == 64
    inner = body.format("<x/>../other/a")  # a parser that joins the text deletes another table's file
    instruction = body.format("<?x y?>a")
    for wrong in (body.replace("orders", "other"), "<Delete/>", "<!DOCTYPE x><Delete/>", "<", inner, instruction):
        with pytest.raises(HttpError):
            signer().sign("POST", uri, {}, wrong, FOLDERS)


def test_amazons_hosts_are_known() -> None:
    for uri in (
        "https://lake.s3.eu-west-1.amazonaws.com/db/orders-1234/a",
        "https://s3.eu-west-1.amazonaws.com/lake/db/orders-1234/a",
    ):
        assert signer("").sign("GET", uri, {}, None, FOLDERS)
    for uri in (
        "https://lake.s3.eu-west-1.amazonaws.com.evil.example/db/orders-1234/a",
        "http://lake.s3.eu-west-1.amazonaws.com/db/orders-1234/a",
        "https://other.s3.eu-west-1.amazonaws.com/db/orders-1234/a",
    ):
        with pytest.raises(HttpError, match="403"):
            signer("").sign("GET", uri, {}, None, FOLDERS)


# Through the operations, on a real S3 server.


@pytest.fixture
def in_bucket(keyed_bucket: str) -> Iterator[KVCatalog]:  # noqa: F811
    properties = {
        "s3.endpoint": keyed_bucket,
        "s3.region": "us-east-1",
        "s3.access-key-id": KNOWN_KEYS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": KNOWN_KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    with KVCatalog.create("s3://keyed/access", None, properties) as catalog:
        yield catalog


def bearer(name: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}", **more}


@pytest.mark.slow
def test_clients_without_keys_reach_the_files_of_their_table_only(in_bucket: KVCatalog) -> None:
    in_bucket.create_namespace("db")
    sts = StandIn()
    delegation = Delegation(Vending(ROLE, sts.assume), Signer.with_botocore(in_bucket.properties))
    tokens = Tokens({hashed(name): Principal(name) for name in ("reader", "writer")})
    application = Application({"lake": in_bucket}, tokens, delegation=delegation)
    owner = Application({"lake": in_bucket})
    for name in ("t", "other"):
        assert answer(owner, "POST", "namespaces/db/tables", {"name": name, "schema": SCHEMA})[0] == 200
    place = in_bucket.grants.place(table="db.t")
    in_bucket.grants.grant(Grantee("user", "reader"), [READ], place)
    in_bucket.grants.grant(Grantee("user", "writer"), [WRITE], place)
    path = "namespaces/db/tables/t"
    asking = {"x-iceberg-access-delegation": "vended-credentials"}

    response = send(application, "GET", path, None, bearer("reader", **asking))
    (found,) = json.loads(response.body)["storage-credentials"]
    location = in_bucket.load_table("db.t").metadata.location
    assert (found["prefix"], response.headers["cache-control"]) == (location, "no-store")
    assert found["config"]["s3.access-key-id"] == "temporary-1"
    assert "PutObject" not in sts.asked[0]["Policy"]
    again = send(application, "GET", f"{path}/credentials", None, bearer("writer"))
    assert "PutObject" in sts.asked[1]["Policy"]
    for each in (response, again):
        assert KNOWN_KEYS["AWS_SECRET_ACCESS_KEY"].encode() not in each.body.replace(b"temporary-secret", b"").replace(
            b"secret-access-key", b""
        )
    assert "storage-credentials" not in json.loads(send(application, "GET", path, None, bearer("reader")).body)

    signing = {"x-iceberg-access-delegation": "remote-signing"}
    config = json.loads(send(application, "GET", path, None, bearer("reader", **signing)).body)["config"]
    assert config["s3.signer.endpoint"] == "v1/namespaces/db/tables/t/sign"

    def sign(who: str, method: str, key: str) -> tuple[int, Any]:
        body = {
            "region": "us-east-1",
            "method": method,
            "uri": f"{in_bucket.properties['s3.endpoint']}/{key}",
            "headers": {},
        }
        return answer(application, "POST", f"{path}/sign", body, authorization=f"Bearer {who}")

    def carried_out(method: str, signed: Any) -> int:
        headers = {name: values[0] for name, values in signed["headers"].items()}
        request = urllib.request.Request(signed["uri"], b"x" if method == "PUT" else None, headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request) as done:  # noqa: S310
            return int(done.status)

    own = f"{location.removeprefix('s3://')}/data/x"
    other = in_bucket.load_table("db.other").metadata.location.removeprefix("s3://")
    assert sign("reader", "PUT", own)[0] == 403
    status, signed = sign("writer", "PUT", own)
    assert (status, carried_out("PUT", signed)) == (200, 200)
    status, signed = sign("reader", "GET", own)
    assert (status, carried_out("GET", signed)) == (200, 200)
    assert sign("writer", "PUT", f"{other}/data/x")[0] == 403
    with pytest.raises(urllib.error.HTTPError, match="403"):
        carried_out("PUT", signed)  # a signature fits its own request only
    _, signed = sign("writer", "PUT", own)
    assert carried_out("PUT", signed) == 200
    source = send(owner, "GET", "namespaces/db/tables/other")
    copied = json.loads(source.body)["metadata-location"].removeprefix("s3:/")
    signed["headers"]["x-amz-copy-source"] = [copied]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        carried_out("PUT", signed)  # with a header that was not signed, to copy another table's file


def test_a_server_without_them_gives_neither_keys_nor_signatures(application: Application) -> None:
    answer(application, "POST", "namespaces/db/tables", {"name": "t", "schema": SCHEMA})
    path = "namespaces/db/tables/t"
    assert answer(application, "GET", f"{path}/credentials")[1] == {"storage-credentials": []}
    body = {"region": "r", "method": "GET", "uri": "s3://x", "headers": {}}
    assert answer(application, "POST", f"{path}/sign", body)[0] == 406
