"""A mutant of `endive serve`: it acknowledges commits before their PUT. The check of histories must find it."""

import argparse
import threading
import time
from collections.abc import Sequence
from typing import Any

from endive.catalog import KVCatalog
from endive.catalog.commit.change import TableChange
from endive.catalog.operations.tables_in_store import LoadedTable
from endive.server.application import Application
from endive.server.asgi import Asgi
from endive.server.running import LOOPBACK, listen, server_of

DELAY_S = 0.05


def commit_early(
    catalog: KVCatalog, changes: Sequence[TableChange], commit_id: str | None = None, **_more: Any
) -> list[LoadedTable]:
    """Return the tables as they are, and commit a moment later."""

    def commit() -> None:
        time.sleep(DELAY_S)
        catalog.commit_many(changes, commit_id)

    threading.Thread(target=commit, daemon=True).start()
    return [catalog.load_table(one.identifier) for one in changes]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--port", type=int)
    parser.add_argument("--property", action="append", default=[])
    given = parser.parse_args()
    KVCatalog.commit_and_load = commit_early  # type: ignore[assignment, method-assign]
    properties = dict(one.split("=", 1) for one in given.property)
    with KVCatalog.open(given.url, None, properties) as catalog, listen(LOOPBACK, given.port) as listening:
        server_of(Asgi(Application({"lake": catalog}))).run(sockets=[listening])


if __name__ == "__main__":
    main()
