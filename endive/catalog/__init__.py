"""The catalog: Iceberg tables that need nothing but a bucket.

    from endive.catalog import KVCatalog

    with KVCatalog.open("s3://bucket/path", create=True) as catalog:
        catalog.create_namespace("db")

In reading order: `names`, `keys`, `records` (what is kept, and where), `works` (what a store must do); `namespaces`,
`tables`, `updates`, `changes`, `commit`, `files` (works: no I/O, no clock); `dropped`, `sweeping` (rows that go in
pieces); `refs`, `retention`, `maintenance` (what to change, what expires, and what may be deleted); `manifests`,
`rebase` (an append that lost its race), `metadata_files`, `publisher`, `planning`; then what brings them together:
`committer`, `opening` (from a URL to a store), `settings` (every `endive.…` property), `upkeep`, `row_checking` and
`checking`, `namespace_catalog`, `table_catalog`, `catalog` (KVCatalog), `transactions` and `pyiceberg` (the plug-in).
"""

from endive.catalog.catalog import KVCatalog
from endive.catalog.commit.changes import TableChange
from endive.catalog.model.records import CommitRecord
from endive.catalog.table_catalog import LoadedTable

__all__ = ["CommitRecord", "KVCatalog", "LoadedTable", "TableChange"]
