"""Refuses tables of Spark's own catalog with the format `endive`.

Spark creates such a table without a word to the data source, and passes none of its options when the table is read: it
could never be read by its name alone. A Python data source has no way to refuse it, so the methods of PySpark that
create tables do, for all sessions of this process: `sql`, `catalog.createTable`, `write.saveAsTable`, `writeTo().using`
and `writeStream.toTable`. Statements that reach Spark another way, such as from a JDBC server, are not seen.
"""

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.streaming.readwriter import DataStreamWriter

from endive.errors import ConfigurationError
from endive.spark.source.data_source import FORMAT

CREATE_TABLE = re.compile(
    r"\s*(?:create\s+(?:or\s+replace\s+)?(?:external\s+)?|replace\s+)table\b.*\busing\s+`?endive`?(?:\s|;|\(|$)",
    re.IGNORECASE | re.DOTALL,
)
COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)

CHOSEN = "_endive_chosen_format"
"""Attribute of a writer: the name that was passed to its `format`, which PySpark keeps in the JVM only."""

Given = dict[str, Any]
"""The arguments of a call by name; `self` is among them."""


def refuse_created_tables() -> None:
    """Let PySpark refuse to create tables of the format `endive`. Idempotent."""
    _before(SparkSession, "sql", lambda given: bool(CREATE_TABLE.match(COMMENTS.sub(" ", str(given["sqlQuery"])))))
    _before(Catalog, "createTable", lambda given: _is_ours(given.get("source")))
    _before(DataFrameWriterV2, "using", lambda given: _is_ours(given["provider"]))
    for writer, creates in ((DataFrameWriter, "saveAsTable"), (DataStreamWriter, "toTable")):
        _before(writer, "format", _keep_format)
        _before(writer, creates, lambda given: _is_ours(given.get("format") or getattr(given["self"], CHOSEN, None)))


def _before(owner: type, name: str, is_refused: Callable[[Given], bool]) -> None:
    """Check the arguments of a method before each call."""
    run: Callable[..., Any] = getattr(owner, name)
    if getattr(run, "refuses_created_tables", False):
        return
    signature = inspect.signature(run)

    @wraps(run)
    def checked(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - any method's
        if is_refused(signature.bind(*arguments, **named).arguments):
            raise ConfigurationError(
                "CREATE TABLE … USING endive",
                [
                    "Spark would create a table of its own catalog, which could not be read",
                    "create the table with `endive catalog create` or PyIceberg's `create_table`; write its rows with "
                    "`frame.write.format('endive').option('catalog', URL).mode('append').save('db.table')`; for SQL "
                    "create a view: CREATE TEMPORARY VIEW name USING endive OPTIONS (catalog 'URL', path 'db.table')",
                ],
            )
        return run(*arguments, **named)

    checked.refuses_created_tables = True  # type: ignore[attr-defined]
    setattr(owner, name, checked)


def _keep_format(given: Given) -> bool:
    setattr(given["self"], CHOSEN, given["source"])
    return False


def _is_ours(name: str | None) -> bool:
    return name is not None and name.lower() == FORMAT
