"""Stages a commit: the new files, and the files that they replace.

A commit is one snapshot, whatever the number of files: a reader sees the table before or after it. Only an overwrite
filter that matches some of a file's rows needs more: PyIceberg rewrites that file, in several snapshots of one atomic
commit.
"""

import warnings
from collections.abc import Mapping, Sequence

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from endive.errors import ConfigurationError
from endive.spark.source.options import WriteOptions
from endive.spark.source.views import committed_as


def stage(
    table: Table, options: WriteOptions, files: Sequence[DataFile], spec_id: int, summary: Mapping[str, str]
) -> Transaction | None:
    """Return the transaction that the options describe; None if it would be empty."""
    _validate(table, options)
    table.metadata = committed_as(table.metadata, spec_id)
    transaction = table.transaction()
    if options.mode == "filter":
        return _stage_filter(transaction, options, files, dict(summary))
    if options.mode == "append":
        return _stage_append(transaction, options, files, dict(summary)) if files else None
    replaced = _replaced(table, options, files)
    if not files and not replaced:
        return None
    producer = transaction.update_snapshot(dict(summary), options.branch).overwrite()
    with producer as snapshot:
        for file in replaced:
            snapshot.delete_data_file(file)
        for file in files:
            snapshot.append_data_file(file)
    return transaction


def _validate(table: Table, options: WriteOptions) -> None:
    """Raise if the branch is not at the expected snapshot. The catalog checks that it stays there."""
    head = table.snapshot_by_name(options.branch)
    if head is None and options.branch != MAIN_BRANCH:
        known = ", ".join(table.refs()) or "none"
        raise ConfigurationError(".".join(table.name()), [f"there is no branch {options.branch!r}; there are: {known}"])
    if options.validate_from is not None and (head.snapshot_id if head else None) != options.validate_from:
        there = f"snapshot {head.snapshot_id}" if head else "no snapshot"
        raise ValidationException(
            f"the job was built on snapshot {options.validate_from}, and branch {options.branch} has {there}; "
            "read the table again and repeat the job"
        )


def _stage_append(
    transaction: Transaction, options: WriteOptions, files: Sequence[DataFile], summary: dict[str, str]
) -> Transaction:
    with transaction.update_snapshot(summary, options.branch).fast_append() as snapshot:
        for file in files:
            snapshot.append_data_file(file)
    return transaction


def _stage_filter(
    transaction: Transaction, options: WriteOptions, files: Sequence[DataFile], summary: dict[str, str]
) -> Transaction | None:
    if options.overwrite_filter is not None and transaction.table_metadata.snapshot_by_name(options.branch):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            transaction.delete(options.overwrite_filter, summary, branch=options.branch)
    if files:
        _stage_append(transaction, options, files, summary)
    return transaction


def _replaced(table: Table, options: WriteOptions, files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files of the branch that the new ones replace: all, or those of the same partitions."""
    head = table.snapshot_by_name(options.branch)
    if head is None:
        return []
    tasks = DataScan(table.metadata, table.io, AlwaysTrue(), snapshot_id=head.snapshot_id).plan_files()
    current = [task.file for task in tasks]
    if options.mode == "overwrite":
        return current
    older = sorted({file.spec_id for file in current} - {table.metadata.default_spec_id})
    if older:
        problem = (
            f"files of older partition specs ({older}) may hold rows of the partitions that are written; "
            "use overwrite-filter, or rewrite them first"
        )
        raise ConfigurationError(".".join(table.name()), [problem])
    written = {file.partition for file in files}
    return [file for file in current if file.partition in written]
