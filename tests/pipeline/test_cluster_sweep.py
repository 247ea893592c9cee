"""A sweep on a real standalone cluster that loses a machine gives what local mode gives, row for row.

A campaign, since `test_bucket_sweep` does the same with less in common: here the machines share a directory.
"""

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from endive.pipeline.plan import Plan
from endive.pipeline.sweep_file import load_group
from tests.pipeline.cluster import standalone_cluster
from tests.pipeline.sweeps import expected_rows, rows_of
from tests.pipeline.test_command import LONG
from tests.surfaces.files import start

MEASURES = ("runs", "experiments", "curves")


def measure(directory: Path, name: str) -> list[dict[str, object]]:
    """The rows of a measure, without how long the runs took."""
    rows = pq.read_table(directory / "measures" / f"{name}.parquet").to_pylist()
    return [{key: value for key, value in row.items() if not key.startswith("cpu_s")} for row in rows]


@pytest.mark.campaign
def test_a_sweep_on_a_cluster_that_loses_a_worker_equals_that_of_local_mode(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    (tmp_path / "cluster").mkdir()
    far = tmp_path / "far"
    with standalone_cluster(tmp_path / "cluster") as cluster:
        sweep = start(tmp_path, "sweep", "long.toml", "--out", "far", "--master", cluster.url, "--no-report")
        while not list(far.glob("runs/part-*")) and sweep.poll() is None:
            time.sleep(0.05)
        before = len(rows_of(far))
        cluster.kill(0)
        _, said = sweep.communicate(timeout=300)
    plan = Plan((load_group(str(tmp_path / "long.toml")),))

    assert sweep.returncode == 0, said
    assert 0 < before < len(plan.runs)
    rows = [{key: value for key, value in row.items() if value is not None} for row in rows_of(far)]
    assert rows == [{key: value for key, value in row.items() if value is not None} for row in expected_rows(plan)]

    near = start(tmp_path, "sweep", "long.toml", "--out", "near", "--no-report")
    _, said = near.communicate(timeout=300)
    assert near.returncode == 0, said
    for name in MEASURES:
        assert measure(far, name) == measure(tmp_path / "near", name)
