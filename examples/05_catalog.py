"""Iceberg tables in a directory: several writers, time travel, a branch, and a commit of two tables at once."""

import tempfile
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.catalog import load_catalog

with tempfile.TemporaryDirectory() as directory:  # or s3://bucket/path
    plug_in = {"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog", "uri": directory}
    catalog = load_catalog("lake", **plug_in)
    catalog.create_namespace("shop")
    orders = catalog.create_table("shop.orders", pa.schema([("id", pa.int64()), ("price", pa.float64())]))
    totals = catalog.create_table("shop.totals", pa.schema([("sum", pa.float64())]))

    def sell(writer: int) -> None:
        """Append three rows, one commit each."""
        own = catalog.load_table("shop.orders")  # all start from the same empty table
        for number in range(3):
            own.append(pa.table({"id": [10 * writer + number], "price": [1.5 * writer]}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(sell, range(1, 5)))
    orders.refresh()
    print("rows          ", orders.scan().to_arrow().num_rows, "in", len(orders.snapshots()), "snapshots")

    first = orders.snapshots()[0]
    print("first snapshot", orders.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows, "row")
    print("files planned ", len(catalog.kv.plan_files("shop.orders", "id >= 40")), "of", len(orders.snapshots()))

    catalog.kv.create_branch("shop.orders", "audit")
    orders.refresh().append(pa.table({"id": [99], "price": [0.0]}), branch="audit")
    print("on the branch ", orders.scan().use_ref("audit").to_arrow().num_rows, "rows; main has", end=" ")
    print(orders.scan().to_arrow().num_rows)

    both = [catalog.load_table("shop.orders").transaction(), totals.transaction()]
    both[0].delete("id < 20")
    both[1].append(pa.table({"sum": [40.5]}))
    catalog.commit_transactions(both)
    print(
        "two tables    ",
        orders.refresh().scan().to_arrow().num_rows,
        totals.refresh().scan().to_arrow()["sum"].to_pylist(),
    )
    print("wrong         ", catalog.kv.check())
    catalog.close()
