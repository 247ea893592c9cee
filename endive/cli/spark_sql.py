"""`endive spark-sql`: Spark SQL on the tables of a catalog."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

from endive.cli.catalog.arguments import Endpoint, Properties, Url, reach, require_lasting
from endive.cli.console import errors, output
from endive.errors import ConfigurationError
from endive.spark.sql import sql_session

ROWS_MAX = 1000
"""Rows of a result that are shown."""
FAILED_EXIT = 1


def spark_sql(
    url: Url,
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="SQL", help="Run these statements, and end.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Run the statements of a file, and end.")] = None,
    name: Annotated[str, typer.Option(help="The catalog's name in SQL.")] = "lake",
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark cluster; without, this machine.")] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
) -> None:
    """Run Spark SQL on the tables of a catalog: Iceberg's own runtime, and nothing to set up.

    `endive spark-sql lake -e "CREATE NAMESPACE db; CREATE TABLE db.t (id BIGINT); INSERT INTO db.t VALUES (1)"`.
    Without `-e` or `-f` statements are read from standard input, each up to its `;`. MERGE, UPDATE, DELETE, time
    travel, branches, views, metadata tables and `CALL lake.system.…` are Iceberg's. The first start fetches Iceberg's
    Spark runtime from Maven.
    """
    if execute is not None and file is not None:
        raise ConfigurationError("endive spark-sql", ["either --execute or --file, not both"])
    if file is not None and not file.is_file():
        raise ConfigurationError(str(file), ["there is no such file"])
    settings = reach(endpoint, properties)
    require_lasting(url, settings)
    with sql_session(url, name, settings, master) as spark:
        spark.sql(f"USE `{name}`")
        if execute is not None or file is not None:
            text = execute if execute is not None else file.read_text(encoding="utf-8") if file is not None else ""
            for statement in statements(text):
                show(spark.sql(statement))
            return
        failed = _interact(spark, name, sys.stdin)
    if failed and not sys.stdin.isatty():
        raise typer.Exit(FAILED_EXIT)


def _interact(spark: SparkSession, name: str, source: TextIO) -> bool:
    """Run statements as they come; return whether one has failed. A pipe ends at its first error."""
    is_terminal = source.isatty()
    failed, pending = False, ""
    while True:
        if is_terminal:
            errors.print(f"{name}> " if not pending.strip() else "   ...> ", end="")
        line = source.readline()
        pending += line
        whole = list(statements(pending)) if not line or line.rstrip().endswith(";") else []
        if whole:
            pending = ""
        for statement in whole:
            try:
                show(spark.sql(statement))
            except PySparkException as error:
                failed = True
                errors.print(f"[red]error:[/] {errors.escape(str(error).partition(chr(10))[0])}", soft_wrap=True)
                if not is_terminal:
                    return failed
        if not line:
            return failed


def show(result: DataFrame) -> None:
    """Print the rows of a result; nothing for a statement that returns no columns."""
    if not result.columns:
        return
    rows = result.limit(ROWS_MAX + 1).collect()
    table = Table(box=None, pad_edge=False)
    for column in result.columns:
        table.add_column(output.escape(column))
    for row in rows[:ROWS_MAX]:
        table.add_row(*("NULL" if value is None else output.escape(str(value)) for value in row))
    output.print(table)
    if len(rows) > ROWS_MAX:
        errors.print(f"the first {ROWS_MAX:,} rows; use LIMIT, or write the result to a table", soft_wrap=True)


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a text, which are separated by `;` outside quotes and comments."""
    start = position = 0
    while position < len(text):
        character = text[position]
        if character in "'\"`":
            position = _after_quote(text, position)
        elif text.startswith("--", position):
            position = _after(text, "\n", position)
        elif text.startswith("/*", position):
            position = _after(text, "*/", position)
        elif character == ";":
            if text[start:position].strip():
                yield text[start:position].strip()
            position = start = position + 1
        else:
            position += 1
    if text[start:].strip():
        yield text[start:].strip()


def _after(text: str, end: str, position: int) -> int:
    found = text.find(end, position)
    return len(text) if found < 0 else found + len(end)


def _after_quote(text: str, position: int) -> int:
    quote, position = text[position], position + 1
    while position < len(text) and text[position] != quote:
        position += 2 if text[position] == "\\" and quote != "`" else 1
    return position + 1
