"""`GET /v1/config`: what a client must know before anything else."""

from collections.abc import Mapping

from endive.catalog.catalog import KVCatalog
from endive.catalog.operations.requests import LIFETIME_MS

FILE_PROPERTIES = frozenset(
    (
        "client.region",
        "s3.region",
        "s3.endpoint",
        "s3.path-style-access",
        "s3.force-virtual-addressing",
        "s3.anonymous",
        "s3.cross-region-access-enabled",
        "s3.dualstack-enabled",
        "s3.acceleration-enabled",
        "s3.use-arn-region-enabled",
        "s3.connect-timeout",
        "s3.request-timeout",
        "gcs.project-id",
        "gcs.service.host",
        "gcs.default-location",
        "adls.account-name",
        "adls.account-host",
        "adls.blob-storage-authority",
        "adls.dfs-storage-authority",
    )
)
"""Properties that are sent to clients. Others may hold secrets: `s3.sse.key`, `adls.connection-string`."""

IDEMPOTENCY_LIFETIME = f"PT{LIFETIME_MS // 60_000}M"
"""How long a client may repeat a request under its key."""


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
    found = {name: value for name, value in properties.items() if name in FILE_PROPERTIES}
    if "s3.endpoint" in found:
        found.setdefault("s3.path-style-access", "true")
    if "s3.region" in found:
        found.setdefault("client.region", found["s3.region"])
    return found
