"""The figures of a sweep in a bucket: DuckDB computes them from the rows there, as the report shows them."""

import importlib.resources
import re
from urllib.parse import urlsplit

import duckdb
import pytest

from endive.pipeline.directory import SweepDirectory
from endive.pipeline.opening import open_results
from endive.report.formatting import label_of, number
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan
from tests.servers.conftest import ANY_KEYS

FIGURES = """
WITH means AS (
    SELECT "catalog.num_tables" AS tables, load, avg(success) AS success, avg(committed_per_s) AS committed_per_s,
        avg(all_p99_ms) AS p99_ms
    FROM read_parquet('s3://bucket/figures/runs/*.parquet') JOIN read_parquet('s3://bucket/figures/experiments-*.parquet')
        USING (experiment)
    WHERE status = 'done' GROUP BY ALL
), points AS (SELECT *, bool_and(success >= 0.95) OVER (PARTITION BY tables ORDER BY load) AS holds FROM means)
SELECT tables, max(load) FILTER (holds), max_by(committed_per_s, load) FILTER (holds),
    max_by(p99_ms, load) FILTER (holds), max(committed_per_s)
FROM points GROUP BY tables ORDER BY tables
"""


def computed_by_duckdb(endpoint: str, query: str) -> list[tuple[float, ...]]:
    with duckdb.connect() as database:
        package = importlib.resources.files("duckdb_extension_httpfs")
        database.execute(f"LOAD '{package}/extensions/v{duckdb.__version__}/httpfs.duckdb_extension'")
        keys = f"KEY_ID '{ANY_KEYS['AWS_ACCESS_KEY_ID']}', SECRET '{ANY_KEYS['AWS_SECRET_ACCESS_KEY']}'"
        place = f"ENDPOINT '{urlsplit(endpoint).netloc}', URL_STYLE 'path', USE_SSL false, REGION 'us-east-1'"
        database.execute(f"CREATE SECRET (TYPE s3, {keys}, {place})")
        return database.execute(query).fetchall()


@pytest.mark.slow
def test_duckdb_computes_the_figures_of_the_report_from_the_bucket(s3_endpoint: str) -> None:
    directory = SweepDirectory("s3://bucket/figures", s3_endpoint)
    leave_runs(directory, small_plan(), parts=3)
    results = open_results(directory)
    results.report()
    page = (directory.read("report.html") or b"").decode()

    figures = computed_by_duckdb(s3_endpoint, FIGURES)

    columns = ("usable_load", "usable_committed_per_s", "usable_p99_ms", "peak_committed_per_s")
    shown = {row["catalog.num_tables"]: [row[name] for name in columns] for row in results.measures().to_pylist()}
    assert {tables: pytest.approx(values) for tables, *values in figures} == shown
    cells = re.findall(r'<td class="n[^>]*>([^<]*?)(?: †)?</td>', page)
    for _, load, committed_per_s, p99_ms, peak_per_s in figures:
        assert {label_of(load), number(p99_ms), number(peak_per_s)} <= set(cells)
        means = [float(cell.removeprefix("≥ ").partition(" ±")[0]) for cell in cells if "±" in cell]
        assert any(mean == pytest.approx(committed_per_s, rel=0.01) for mean in means)
