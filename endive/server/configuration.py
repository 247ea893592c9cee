"""`GET /v1/config`: what a client must know before anything else."""

from collections.abc import Mapping

from endive.catalog.catalog import KVCatalog

SECRET_WORDS = (
    "access-key",
    "account-key",
    "connection-string",
    "credential",
    "kwargs",
    "password",
    "proxy",
    "sas",
    "secret",
    "token",
)
"""Parts of the names of properties that are never sent to a client."""

FILE_PROPERTIES = ("s3.", "gcs.", "adls.", "client.region")

IDEMPOTENCY_LIFETIME = "PT30M"
"""How long a client may repeat a request under its key. A table keeps the results of its last 1,000 commits."""


def configuration(catalog: KVCatalog, prefix: str, endpoints: list[str]) -> dict[str, object]:
    """Return the configuration of a warehouse. `prefix`: the warehouse's part of every path; empty: none."""
    return {
        "defaults": client_properties(catalog.properties),
        "overrides": {"prefix": prefix} if prefix else {},
        "endpoints": endpoints,
        "idempotency-key-lifetime": IDEMPOTENCY_LIFETIME,
    }


def client_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that help a client to find files, and none that is a secret."""
    found = {
        name: value
        for name, value in properties.items()
        if name.startswith(FILE_PROPERTIES) and not any(word in name for word in SECRET_WORDS)
    }
    if "s3.endpoint" in found:
        found.setdefault("s3.path-style-access", "true")
    if "s3.region" in found:
        found.setdefault("client.region", found["s3.region"])
    return found
