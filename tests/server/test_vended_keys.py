"""Temporary keys of a real STS: a client without keys writes its own table, and reaches nothing else."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Privilege
from endive.server import Limits, RunningServer
from endive.server.access import Principal, Tokens, hashed
from endive.server.application import Application
from endive.server.storage.delegation import Delegation
from endive.server.storage.vending import Vending
from tests.servers.conftest import answers, seaweedfs

ROLE = "arn:aws:iam::123456789012:role/lake"
REGION = "us-east-1"
ROWS = pa.table({"id": [1, 2, 3]})


def _iam() -> dict[str, Any]:
    """SeaweedFS' configuration: the server's own keys, and a role that may do everything in the bucket."""
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}
    keys = {"accessKey": "server-key", "secretKey": "server-secret"}
    version = "2012-10-17"
    return {
        "identities": [{"name": "server", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List"]}],
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "sts",
            "signingKey": base64.b64encode(b"k" * 32).decode(),
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "roles": [
            {
                "roleName": "lake",
                "roleArn": ROLE,
                "trustPolicy": {"Version": version, "Statement": [trust]},
                "attachedPolicies": ["all"],
            }
        ],
        "policies": [{"name": "all", "document": {"Version": version, "Statement": [everything]}}],
    }


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server with an STS, and the bucket `lake`."""
    directory: Path = tmp_path_factory.mktemp("sts")
    file = directory / "iam.json"
    file.write_text(json.dumps(_iam()))
    options = [f"-s3.config={file}", f"-s3.iam.config={file}"]
    with seaweedfs(directory, lambda url: answers(f"{url}/lake"), more=options) as url:
        s3(url, "server-key", "server-secret").create_bucket(Bucket="lake")
        yield url


def s3(endpoint: str, key: str, secret: str, token: str | None = None) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
    )


@pytest.mark.slow
def test_a_client_without_keys_writes_its_own_table_and_nothing_else(endpoint: str) -> None:
    properties = {
        "s3.endpoint": endpoint,
        "s3.region": REGION,
        "s3.access-key-id": "server-key",
        "s3.secret-access-key": "server-secret",
    }
    with KVCatalog.create("s3://lake/warehouse", None, properties) as catalog:
        catalog.create_namespace("db")
        names = ("ada", "bob")
        catalog.grants.grant(Grantee("user", "ada"), [Privilege.CREATE], catalog.grants.place("db"))
        vending = Vending.with_boto3(ROLE, endpoint, properties)
        tokens = Tokens({hashed(name): Principal(name) for name in names})
        application = Application({"lake": catalog}, tokens, delegation=Delegation(vending))
        with RunningServer(application, Limits(threads=8), "ada").start() as server:
            ada = load_catalog("lake", type="rest", uri=server.url, token="ada")  # noqa: S106
            table = ada.create_table("db.own", ROWS.schema)
            other = ada.create_table("db.other", ROWS.schema)
            table.append(ROWS)
            assert ada.load_table("db.own").scan().to_arrow().num_rows == 3

            catalog.grants.grant(Grantee("user", "bob"), [Privilege.READ], catalog.grants.place(table="db.own"))
            bob = load_catalog("bob", type="rest", uri=server.url, token="bob").load_table("db.own")  # noqa: S106
            assert bob.scan().to_arrow().num_rows == 3
        assert "server-secret" not in str([table.io.properties, bob.io.properties])
        _reaches(endpoint, table.io.properties, table.location(), writes=True)
        _reaches(endpoint, bob.io.properties, table.location(), writes=False)
        for each in (table, bob):
            _reaches_nothing(endpoint, each.io.properties, other.location(), "s3://lake/warehouse/_endive")


def _client(endpoint: str, properties: dict[str, str]) -> Any:
    names = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
    return s3(endpoint, *(properties[name] for name in names))


def _reaches(endpoint: str, properties: dict[str, str], location: str, writes: bool) -> None:
    client, folder = _client(endpoint, properties), location.removeprefix("s3://lake/")
    found = client.list_objects_v2(Bucket="lake", Prefix=f"{folder}/")["Contents"]
    assert client.get_object(Bucket="lake", Key=found[0]["Key"])
    if writes:
        client.put_object(Bucket="lake", Key=f"{folder}/x", Body=b"x")
        client.delete_object(Bucket="lake", Key=f"{folder}/x")
    else:
        _denied(lambda: client.put_object(Bucket="lake", Key=f"{folder}/x", Body=b"x"))
        _denied(lambda: client.delete_object(Bucket="lake", Key=found[0]["Key"]))


def _reaches_nothing(endpoint: str, properties: dict[str, str], *locations: str) -> None:
    client = _client(endpoint, properties)
    _denied(lambda: client.list_objects_v2(Bucket="lake"))
    for location in locations:
        key = f"{location.removeprefix('s3://lake/')}/x"
        _denied(lambda key=key: client.get_object(Bucket="lake", Key=key))
        _denied(lambda key=key: client.put_object(Bucket="lake", Key=key, Body=b"x"))
        _denied(lambda key=key: client.delete_object(Bucket="lake", Key=key))


def _denied(ask: Any) -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        ask()
