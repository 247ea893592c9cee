"""Sweeps on machines that share nothing but a bucket: equal to local mode, row for row, whatever is lost."""

import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from site import getsitepackages

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from endive.pipeline import run_sweep
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan
from endive.pipeline.results import SweepResults
from endive.pipeline.sweep_file import load_group
from tests.pipeline.cluster import standalone_cluster
from tests.pipeline.sweeps import expected_rows, sweep_text
from tests.pipeline.test_command import LONG
from tests.pipeline.test_execute import present
from tests.servers.conftest import ANY_KEYS, azure_endpoint, s3_endpoint  # noqa: F401 - fixtures
from tests.servers.refusing import Refusals, refusing_proxy
from tests.surfaces.files import start

MEASURES = ("runs", "experiments", "curves")
pytestmark = pytest.mark.slow


@pytest.fixture
def flaky(s3_endpoint: str) -> Iterator[tuple[str, Refusals]]:  # noqa: F811 - the fixture
    """An object store that refuses every twentieth request, half of them after they took effect."""
    with refusing_proxy(s3_endpoint) as proxy:
        yield proxy


def rows_in(directory: SweepDirectory) -> list[dict[str, object]]:
    tables = [rows for _, rows in directory.read_parts(directory.parts())]
    rows = pa.concat_tables(tables).drop_columns(["cpu_s"]).to_pylist() if tables else []
    return sorted(present(rows), key=lambda row: (row["experiment"], row["seed"]))


def measures_of(results: SweepResults) -> dict[str, list[dict[str, object]]]:
    """Every measure, without how long the runs took."""
    return {
        name: [
            {key: value for key, value in row.items() if not key.startswith("cpu_s")}
            for row in results.measures(name).to_pylist()  # type: ignore[arg-type]
        ]
        for name in MEASURES
    }


def python_without_endive(directory: Path) -> Path:
    """Make an environment with the dependencies of this one, but not with the package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    (site,) = directory.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(getsitepackages()), encoding="utf-8")
    tried = [str(python), "-c", "import pyarrow, pyspark, endive"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(tried, check=False, capture_output=True, text=True, cwd="/", env=variables)
    assert "No module named 'endive'" in found.stderr
    return python


def test_a_sweep_in_a_bucket_equals_that_of_a_directory(
    spark: SparkSession, tmp_path: Path, flaky: tuple[str, Refusals]
) -> None:
    content = tomllib.loads(sweep_text(tables="[1, 3]", keep="transactions"))
    endpoint, refusals = flaky

    far = run_sweep(content, "s3://bucket/sweeps/small", endpoint=endpoint, master="local[2]")
    near = run_sweep(content, tmp_path / "near", master="local[2]")

    assert spark is not None
    assert refusals.refused > 0
    assert refusals.lost > 0
    assert measures_of(far) == measures_of(near)
    assert far.report() == "s3://bucket/sweeps/small/report.html"
    assert len(far.files.read("report.html") or b"") > 100_000
    names = [{info.path.partition("/")[0] for info in results.files.list("")} for results in (far, near)]
    assert names[0] == names[1] | {"report.html"}


@pytest.mark.campaign
def test_a_sweep_in_a_container_of_azure(tmp_path: Path, azure_endpoint: str) -> None:  # noqa: F811 - the fixture
    (tmp_path / "few.toml").write_text(sweep_text(tables="[1]", scales="[2000, 400]", keep="transactions"))
    plan = Plan((load_group(str(tmp_path / "few.toml")),))
    url = "az://container/sweeps/few"
    words = ("sweep", "few.toml", "--out", url, "--endpoint", azure_endpoint, "--master", "local[2]", "--clean")
    for is_repeated in (False, True):
        process = start(tmp_path, *words)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
        assert (f"{len(plan.runs)} runs are done already" in said) == is_repeated

    far = SweepDirectory(url, azure_endpoint)
    assert rows_in(far) == present(expected_rows(plan))
    assert {info.path for info in far.list("transactions/")} == {far.transactions(*run) for run in plan.runs}
    assert len(SweepResults(far).measures("runs")) == len(plan.runs)
    assert len(far.read("report.html") or b"") > 100_000


def test_machines_that_share_only_a_bucket(spark: SparkSession, tmp_path: Path, flaky: tuple[str, Refusals]) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    (tmp_path / "cluster").mkdir()
    endpoint, refusals = flaky
    python = python_without_endive(tmp_path / "environment")
    out = "s3://bucket/sweeps/cluster"
    far = SweepDirectory(out, endpoint)
    options = ["--conf", "spark.speculation=true", "--conf", "spark.speculation.quantile=0.5"]
    options += ["--endpoint", endpoint, "--ship", "--no-report", "--clean"]
    variables = {**ANY_KEYS, "PYSPARK_PYTHON": str(python)}
    with standalone_cluster(tmp_path / "cluster", variables=variables) as cluster, pytest.MonkeyPatch.context() as env:
        env.setenv("PYSPARK_PYTHON", str(python))
        sweep = start(tmp_path, "sweep", "long.toml", "--out", out, "--master", cluster.url, *options)
        while not far.parts() and sweep.poll() is None:
            time.sleep(0.2)
        before = len(rows_in(far))
        cluster.kill(0)
        _, said = sweep.communicate(timeout=300)
    plan = Plan((load_group(str(tmp_path / "long.toml")),))

    assert sweep.returncode == 0, said
    assert 0 < before < len(plan.runs)
    assert rows_in(far) == present(expected_rows(plan))
    assert refusals.refused > 0
    assert not list(tmp_path.glob("sweeps*"))
    assert spark is not None  # local mode is that of the session of the tests
    near = run_sweep(tmp_path / "long.toml", tmp_path / "near")
    assert measures_of(SweepResults(far)) == measures_of(near)
    assert [info.path for info in far.list(".running/")] == []
