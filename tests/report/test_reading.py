"""Reading results: what is missing, damaged or incomplete is named with its remedy."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from endive.errors import ResultError
from endive.pipeline.curves import CURVE_FIELDS
from endive.pipeline.estimates import ESTIMATES
from endive.pipeline.run_rows import RUN_SCHEMA
from endive.report import metrics
from endive.report.reading import read_results
from tests.report.builder import BASELINE, write_results


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_results(tmp_path / "sweep", [BASELINE], seeds=(1, 2))


def test_everything_is_read(small: Path) -> None:
    results = read_results(small)

    assert [group.name for group in results.about.groups] == ["baseline"]
    assert len(results.runs) == 20
    assert len(results.experiments) == 10
    assert len(results.curves) == 1


def test_a_table_may_be_a_directory_as_spark_writes_it(small: Path) -> None:
    path = small / "measures" / "experiments.parquet"
    table = pq.read_table(path)
    path.unlink()
    path.mkdir()
    pq.write_table(table.slice(0, 4), path / "part-00000.parquet")
    pq.write_table(table.slice(4), path / "part-00001.parquet")
    (path / "_SUCCESS").touch()

    assert len(read_results(small).experiments) == 10


@pytest.mark.parametrize("name", ["about.json", "measures/runs.parquet", "measures/curves.parquet"])
def test_a_missing_file_is_named(small: Path, name: str) -> None:
    (small / name).unlink()

    with pytest.raises(ResultError, match="does not exist") as error:
        read_results(small)
    assert error.value.path.endswith(name)
    assert "endive sweep" in error.value.remedy


def test_an_about_that_is_no_json_is_damaged(small: Path) -> None:
    (small / "about.json").write_text('{"title": ', encoding="utf-8")

    with pytest.raises(ResultError, match="is damaged"):
        read_results(small)


def test_an_about_that_lacks_a_key_says_which(small: Path) -> None:
    about = json.loads((small / "about.json").read_text(encoding="utf-8"))
    del about["families"][0]["load_key"]
    (small / "about.json").write_text(json.dumps(about), encoding="utf-8")

    with pytest.raises(ResultError, match=r"families\.0\.load_key"):
        read_results(small)


def test_a_file_that_is_no_parquet_is_named(small: Path) -> None:
    (small / "measures" / "runs.parquet").write_bytes(b"not Parquet at all")

    with pytest.raises(ResultError, match=r"runs\.parquet: cannot be read"):
        read_results(small)


def test_a_table_that_lacks_columns_says_which(small: Path) -> None:
    path = small / "measures" / "curves.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["usable_load", "series"]), path)

    with pytest.raises(ResultError, match="lacks the columns series, usable_load"):
        read_results(small)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "nothing", ignore_errors=True)

    with pytest.raises(ResultError, match="nothing"):
        read_results(tmp_path / "nothing")


def test_the_report_reads_columns_that_a_sweep_writes() -> None:
    runs = {"family", *RUN_SCHEMA.names}
    experiments = {"load", *ESTIMATES.names}
    curves = ["family", *(field.name for field in CURVE_FIELDS)]

    assert set(metrics.RUN_COLUMNS) <= runs
    assert set(metrics.EXPERIMENT_COLUMNS) <= experiments
    assert ["family", "series", *metrics.CURVE_METRICS, "trust"] == curves
    assert {*metrics.CURVE_COLUMNS, *metrics.LATER_COLUMNS} == set(curves)
