"""A bucket that fails while `endive sweep` runs: one message with a remedy, and nothing that looks complete."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from endive.pipeline import sweep
from endive.pipeline.catalog_tables import catalog_at, read_runs
from endive.pipeline.consolidate import is_current
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.opening import open_results
from tests.pipeline.sweeps import sweep_text
from tests.servers.conftest import s3_endpoint  # noqa: F401 - a fixture
from tests.servers.refusing import Refusals, refusing_proxy
from tests.servers.test_sweep_errors import FAILURES
from tests.surfaces.conftest import endive  # noqa: F401 - a fixture
from tests.surfaces.files import CommandLine, Outcome

pytestmark = pytest.mark.slow

NAMES = ("a full bucket", "expired credentials", "a bucket that is gone", "another region")
MOMENTS = {"runs": "/runs/part-", "measures": "/measures/curves", "report": "/report.html"}
"""By phase of the sweep: the path of the first write that fails."""
RUNS = 3


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[tuple[str, Refusals]]:  # noqa: F811 - the fixture
    with refusing_proxy(s3_endpoint, Refusals(every=0)) as started:
        yield started


def failed(outcome: Outcome, remedy: str) -> None:
    assert outcome.code == 2, outcome.err
    assert remedy in outcome.err
    assert outcome.err.count("; ") <= outcome.err.count("\n")  # one message, of one line
    assert "Traceback" not in outcome.err + outcome.out
    assert "report:" not in outcome.out


@pytest.mark.parametrize("name", NAMES)
def test_a_bucket_that_fails_while_something_is_written(
    name: str,
    spark: SparkSession,
    endive: CommandLine,  # noqa: F811 - the fixture
    proxy: tuple[str, Refusals],
) -> None:
    endpoint, refusals = proxy
    denial, remedy = FAILURES[name]
    endive.write("few.toml", sweep_text(tables="[1]", scales="[2000]"))
    out = f"s3://bucket/failing/{name.replace(' ', '-')}"
    directory = SweepDirectory(out, endpoint)
    words = ("sweep", "few.toml", "--out", out, "--endpoint", endpoint, "--master", "local[2]")
    assert spark is not None

    for moment, path in MOMENTS.items():
        refusals.denies_reads = name == "a bucket that is gone"
        refusals.denies_from = (path, denial)
        outcome = endive(*words)
        refusals.denies_from = refusals.denial = None

        failed(outcome, remedy)
        assert bool(directory.parts()) == (moment != "runs")
        assert is_current(directory) == (moment == "report")
        assert directory.read("report.html") is None

    repeated = endive(*words)

    assert repeated.code == 0, repeated.err
    assert f"{RUNS} runs are done already" in repeated.err
    assert len(open_results(directory).measures("runs")) == RUNS
    assert len(directory.read("report.html") or b"") > 100_000


@pytest.mark.campaign
@pytest.mark.parametrize("name", NAMES)
def test_a_bucket_that_fails_while_a_sweep_in_tables_runs(
    name: str,
    spark: SparkSession,
    endive: CommandLine,  # noqa: F811 - the fixture
    proxy: tuple[str, Refusals],
) -> None:
    endpoint, refusals = proxy
    denial, remedy = FAILURES[name]
    endive.write("few.toml", sweep_text(tables="[1]", scales="[2000]"))
    url = f"s3://bucket/failing-lakes/{name.replace(' ', '-')}"
    words = ("sweep", "few.toml", "--catalog", url, "--endpoint", endpoint, "--master", "local[2]", "--no-report")
    assert spark is not None

    refusals.denies_reads = name == "a bucket that is gone"
    refusals.denies_from = ("/sweep/runs", denial)
    outcome = endive(*words)
    refusals.denies_from = refusals.denial = None

    failed(outcome, remedy)
    repeated = endive(*words)
    assert repeated.code == 0, repeated.err
    assert len(read_runs(catalog_at(url, endpoint), "few")) == RUNS


def test_a_bucket_that_does_not_exist_is_one_message_before_spark_starts(
    endive: CommandLine,  # noqa: F811 - the fixture
    proxy: tuple[str, Refusals],
) -> None:
    endpoint, refusals = proxy
    refusals.denial, remedy = FAILURES["a bucket that is gone"]
    endive.write("few.toml", sweep_text(tables="[1]", scales="[2000]"))

    outcome = endive("sweep", "few.toml", "--out", "s3://nowhere/x", "--endpoint", endpoint)

    failed(outcome, remedy)
    assert "starting Spark" not in outcome.err


def test_a_bucket_that_disappears_before_the_tasks_begin_is_one_message(
    spark: SparkSession,
    endive: CommandLine,  # noqa: F811 - the fixture
    proxy: tuple[str, Refusals],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, refusals = proxy
    denial, remedy = FAILURES["a bucket that is gone"]
    endive.write("few.toml", sweep_text(tables="[1]", scales="[2000]"))
    refusals.denies_reads = True
    monkeypatch.setattr(sweep, "_compile_engine", lambda _: setattr(refusals, "denial", denial))

    outcome = endive(
        "sweep", "few.toml", "--out", "s3://bucket/failing/soon", "--endpoint", endpoint, "--master", "local[2]"
    )

    assert spark is not None
    failed(outcome, remedy)
    assert "every machine of the cluster" not in outcome.err
