"""Compaction of data files by Spark SQL, for `endive catalog maintain --compact-files`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from endive.catalog import KVCatalog
from endive.catalog.maintenance.maintain import MaintenanceReport
from endive.catalog.maintenance.rewritable_files import RewritableFiles, rewritable_files
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.operations.table_rows import all_tables
from endive.errors import NotInCatalogError
from endive.extras import naming_extra

NAME = "lake"
"""Of the catalog in the session."""


@dataclass
class Compaction:
    """Files of a table that were rewritten; in a dry run, those that would be."""

    data_files_before: int = 0
    data_files_after: int = 0
    delete_files_before: int = 0
    delete_files_after: int = 0
    error: str = ""


def candidates(
    catalog: KVCatalog, names: tuple[Identifier, ...], with_deletes: bool
) -> dict[Identifier, RewritableFiles]:
    """Return the tables that have files to be rewritten; `names`: only of these tables."""
    found = {}
    for name in names or tuple(record.identifier for record in catalog.store.read(all_tables)):
        try:
            files = rewritable_files(catalog.tables, name)
        except NotInCatalogError:
            if names:
                raise
            continue  # dropped meanwhile
        if files.data_files or (with_deletes and files.delete_files):
            found[name] = files
    return found


def expected(found: Mapping[Identifier, RewritableFiles], with_deletes: bool) -> dict[str, Compaction]:
    """Return what a compaction would do, for a dry run."""
    return {
        text_of(name): Compaction(files.data_files, delete_files_before=files.delete_files if with_deletes else 0)
        for name, files in found.items()
    }


def compacted(
    url: str,
    properties: Mapping[str, str],
    found: Mapping[Identifier, RewritableFiles],
    with_deletes: bool,
    tell: Callable[[str], None],
) -> dict[str, Compaction]:
    """Rewrite the files of tables in one Spark session; a table that fails does not keep the others from theirs."""
    with naming_extra("sql"):
        from pyspark.errors import PySparkException  # noqa: PLC0415 - only with the extra

        from endive.spark.compaction import rewrite_data_files, rewrite_delete_files  # noqa: PLC0415
        from endive.spark.sql import sql_session  # noqa: PLC0415
    done: dict[str, Compaction] = {}
    tell("starting Spark")
    with sql_session(url, NAME, properties, create=False) as spark:
        for name, files in found.items():
            tell(f"compacting files of {text_of(name)}")
            one = done[text_of(name)] = Compaction()
            try:
                if files.data_files:
                    one.data_files_before, one.data_files_after = rewrite_data_files(spark, NAME, name)
                if with_deletes and files.delete_files:
                    one.delete_files_before, one.delete_files_after = rewrite_delete_files(spark, NAME, name)
            except PySparkException as error:
                one.error = f"{type(error).__name__}: {error}".splitlines()[0]
    return done


def add_to(report: MaintenanceReport, done: Mapping[str, Compaction]) -> None:
    """Add compactions to the report of the maintenance that followed them."""
    for one in report.tables:
        files = done.get(one.table)
        if files is None:
            continue
        one.data_files_before, one.data_files_after = files.data_files_before, files.data_files_after
        one.delete_files_before, one.delete_files_after = files.delete_files_before, files.delete_files_after
        one.error = one.error or files.error
