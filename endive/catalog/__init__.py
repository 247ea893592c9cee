"""The catalog: Iceberg tables that need nothing but a bucket.

    from endive.catalog import KVCatalog

    with KVCatalog.open("s3://bucket/path", create=True) as catalog:
        catalog.create_namespace("db")

In reading order: `names`, `keys`, `records` (what is kept, and where), `works` (what a store must do), `namespaces`,
`tables`, `commit` (works: no I/O, no clock), `files` (which files a snapshot has), `rebase` (an append that lost its
race), `metadata_files`, `committer`, `catalog` (KVCatalog), `maintenance`, `pyiceberg` (the plug-in).
"""

from endive.catalog.catalog import KVCatalog, LoadedTable
from endive.catalog.commit import TableChange
from endive.catalog.records import CommitRecord

__all__ = ["CommitRecord", "KVCatalog", "LoadedTable", "TableChange"]
