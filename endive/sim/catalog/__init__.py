"""The simulated catalog. `endive.sim.catalog` is simulated, `endive.catalog` is real."""

from endive.sim.catalog.append import AppendCatalog, LogLimits
from endive.sim.catalog.cas import CASCatalog, Catalog, InstantCatalog, ServiceCatalog
from endive.sim.catalog.types import (
    APPENDS_MAX,
    CatalogSnapshot,
    CommitResult,
    IntentionRecord,
    Partitions,
    TableMetadata,
)

__all__ = [
    "APPENDS_MAX",
    "AppendCatalog",
    "CASCatalog",
    "Catalog",
    "CatalogSnapshot",
    "CommitResult",
    "InstantCatalog",
    "IntentionRecord",
    "LogLimits",
    "Partitions",
    "ServiceCatalog",
    "TableMetadata",
]
