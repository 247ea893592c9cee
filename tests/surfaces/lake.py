"""A catalog in a directory, and the command line on it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from endive.catalog.connection import FOLDER, open_place
from endive.catalog.model.transaction import TransactionFunction
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.cli.catalog.columns import parse_partitions, parse_schema
from endive.kv import Store
from tests.surfaces.files import CommandLine, Outcome

SCHEMA = "id long required, ts timestamptz, region string"
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("region", pa.string()),
    ]
)
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def events(day: int, ids: range, region: str = "x") -> pa.Table:
    """Rows of one day."""
    moment = FIRST_DAY + timedelta(days=day)
    return pa.table({"id": list(ids), "ts": [moment] * len(ids), "region": [region] * len(ids)}, schema=ARROW)


class Lake:
    """`lake("tables")` is `endive catalog tables URL`, with the code it should end with."""

    def __init__(self, command_line: CommandLine, directory: Path) -> None:
        self.directory = directory
        self.url = f"file://{directory}"
        self._run = command_line

    def __call__(self, command: str, *words: str, code: int = 0) -> Outcome:
        outcome = self._run("catalog", command, self.url, *words)
        assert outcome.code == code, f"{outcome.code}: {outcome.out}{outcome.err}"
        return outcome

    def json(self, command: str, *words: str, code: int = 0) -> Any:
        """What a command prints for machines."""
        return json.loads(self(command, *words, "--json", code=code).out)

    def append(self, name: str, *tables: pa.Table) -> None:
        """Append rows through the plug-in, a commit for each table."""

        def append_all(catalog: EndiveCatalog) -> None:
            for rows in tables:
                catalog.load_table(name).append(rows)

        self.use(append_all)

    def use(self, change: Callable[[EndiveCatalog], object]) -> None:
        """Do something through the plug-in."""
        catalog = EndiveCatalog("test", uri=self.url, **{"endive.create": "false"})
        try:
            change(catalog)
        finally:
            catalog.close()

    def tamper(self, work: TransactionFunction[Any]) -> None:
        """Change rows behind the catalog's back."""
        with Store(open_place(f"{self.url}/{FOLDER}", {}), "shared", create=False) as store:
            store.transact(work)


def rows_of(lake: Lake, name: str = "db.events") -> list[int]:
    """The ids that a plain reader finds in a table, by its metadata file alone."""
    location = lake("export", name).out.strip()
    return sorted(StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist())


def make_lake(directory: Path) -> None:
    """Make a lake with the table `db.events`: two days, two snapshots of four rows each."""
    catalog = EndiveCatalog("test", uri=f"file://{directory}")
    catalog.create_namespace("db")
    schema = parse_schema(SCHEMA)
    table = catalog.create_table("db.events", schema, partition_spec=parse_partitions("day(ts), region", schema))
    table.append(events(0, range(4)))
    table.append(events(1, range(4, 8)))
    catalog.close()
