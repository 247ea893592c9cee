"""The catalog: Iceberg tables that need nothing but a bucket.

    from endive.catalog import KVCatalog

    with KVCatalog.open("s3://bucket/path", create=True) as catalog:
        catalog.create_namespace("db")

In reading order: `model` (names, keys, records, and the interface of the store), `operations` (namespaces, tables, refs
and dropped tables), `commit` (from a change to its rows: `change`, `base`, `decision`, `prepared`, `apply`,
`committer`), `maintenance` (retention, expiry, purge, orphan files, checks), `settings` (every `endive.…` property),
`connection` (from a URL to a store), `checkpoints` and `clones`, `catalog` and `through_time` (KVCatalog) and
`pyiceberg` (the plug-in). `iceberg` has PyIceberg's private names.
"""

from endive.catalog.catalog import KVCatalog
from endive.catalog.commit.change import TableChange
from endive.catalog.maintenance.maintain import MaintenanceOptions, MaintenanceReport
from endive.catalog.model.catalog_records import CommitRecord
from endive.catalog.operations.tables_in_store import LoadedTable

__all__ = ["CommitRecord", "KVCatalog", "LoadedTable", "MaintenanceOptions", "MaintenanceReport", "TableChange"]
