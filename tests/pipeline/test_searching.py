"""Searches on Spark give the answers of one machine; capacities are read back from sweeps that have run."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import endive as package
from endive.errors import SparkUnavailableError
from endive.pipeline.catalog_tables import Publication
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.searching import on_spark
from endive.spark import session
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan
from tests.pipeline.test_command import names_in
from tests.servers.conftest import s3_endpoint  # noqa: F401 - a fixture
from tests.surfaces.conftest import endive  # noqa: F401 - a fixture
from tests.surfaces.files import SMALL, CommandLine, start

VARY = {"catalog.num_tables": [1, 3]}


def test_searches_on_spark_give_the_answers_of_one_machine(spark: SparkSession) -> None:
    here = package.capacity(SMALL, 0.9, vary=VARY, seeds="1..3", tolerance=0.05)
    there = package.capacity(SMALL, 0.9, vary=VARY, seeds="1..3", tolerance=0.05, spread=on_spark(spark))

    assert len(here.answers) == 2
    assert there.document() == here.document()
    assert there.answers == here.answers


def test_a_search_that_fails_on_spark_is_one_message(spark: SparkSession) -> None:
    class Failing:
        def run(self) -> None:
            raise RuntimeError("a defect")

    with pytest.raises(SparkUnavailableError, match="Spark gave up"):
        list(on_spark(spark)([Failing()]))  # type: ignore[list-item]


def test_capacities_are_read_from_a_sweep_without_spark(endive: CommandLine) -> None:  # noqa: F811 - the fixture
    leave_runs(endive.directory / "small", small_plan())

    shown = endive("capacity", "--from", "small")
    exact = endive("capacity", "--from", "small", "--success", "1.0", "--json")

    assert shown.code == 0, shown.err
    assert "Small" in shown.out
    assert "3 tables" in shown.out
    ((group,), strict) = json.loads(exact.out), exact.code
    assert strict == 0
    loads = [row["usable_load"] for row in group["series"]]
    assert all(load is None or load <= 1000 / 150 for load in loads)


def test_capacities_are_read_from_a_catalog(endive: CommandLine) -> None:  # noqa: F811 - the fixture
    directory = leave_runs(endive.directory / "small", small_plan())
    url = (endive.directory / "lake").as_uri()
    with Publication(url, "small", directory) as publication:
        publication.begin(())
        publication.publish(directory.parts())

    assert_the_same_capacities(endive, url, "--sweep", "small")


@pytest.mark.slow
def test_capacities_are_read_from_a_bucket(
    endive: CommandLine,  # noqa: F811 - the fixture
    s3_endpoint: str,  # noqa: F811 - the fixture
) -> None:
    url = "s3://bucket/sweeps/capacities"
    for place in (endive.directory / "small", SweepDirectory(url, s3_endpoint)):
        leave_runs(place, small_plan())

    assert_the_same_capacities(endive, url, "--endpoint", s3_endpoint)


def assert_the_same_capacities(endive: CommandLine, place: str, *options: str) -> None:  # noqa: F811
    """Compare the answers from a place with those from the directory `small`."""
    near, far = (endive("capacity", "--json", "--from", one, *more) for one, more in (("small", ()), (place, options)))
    assert far.code == 0, far.err
    assert far.out == near.out
    assert len(json.loads(far.out)[0]["series"]) == 2


@pytest.mark.slow
def test_the_command_searches_on_spark_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    words = ("capacity", "small.toml", "--success", "0.9", "--seeds", "1..2", "--tolerance", "0.05", "--json")
    logs = {"enabled": "true", "dir": tmp_path.as_uri(), "rolling.enabled": "false", "compress": "false"}
    settings = [word for key, value in logs.items() for word in ("--conf", f"spark.eventLog.{key}={value}")]
    outcomes = []
    for options in ((), ("--master", "local[2]", "--ship", *settings)):
        process = start(tmp_path, *words, *options)
        outcomes.append(process.communicate(timeout=600)[0])
        assert process.returncode == 0, outcomes

    here, there = map(json.loads, outcomes)
    assert there == here
    jobs, stages = names_in(next(tmp_path.glob("local-*")))
    assert jobs == stages == {"capacity: 1 searches"}


def test_the_command_ships_the_package_to_a_cluster(
    endive: CommandLine,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[object, ...]] = []

    def fail(master: str, *, settings: dict[str, str], ship: bool, sources: bool) -> None:
        calls.append((master, settings["spark.speculation"], ship, sources))
        raise SparkUnavailableError("no cluster", "none is needed")

    monkeypatch.setattr(session, "spark_session", fail)
    outcome = endive("capacity", "small.toml", "--master", "yarn", "--ship", "--conf", "spark.speculation=true")

    assert outcome.code == 2
    assert calls == [("yarn", "true", True, False)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ship",), "give --master"),
        (("--conf", "spark.speculation=true"), "give --master"),
        (("--master", "local", "--conf", "speculation"), "expected KEY=VALUE"),
        (("--master", "mesos://host:5050"), "spark://host:7077, yarn or k8s://https://host:443"),
    ],
)
def test_wrong_settings_of_spark_are_one_message(
    endive: CommandLine,  # noqa: F811 - the fixture
    options: tuple[str, ...],
    message: str,
) -> None:
    outcome = endive("capacity", "small.toml", *options)

    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize("arguments", [(), ("small.toml", "--from", "small")])
def test_a_search_needs_a_file_or_a_sweep(endive: CommandLine, arguments: tuple[str, ...]) -> None:  # noqa: F811
    outcome = endive("capacity", *arguments)

    assert outcome.code == 2
    assert "give a configuration FILE, or --from" in outcome.err


def test_the_results_of_a_sweep_are_the_same_for_its_own_target(tmp_path: Path) -> None:
    from endive.pipeline.opening import open_results

    leave_runs(tmp_path / "small", small_plan())
    results = open_results(tmp_path / "small")

    assert results.groups_at(0.95) == results.groups
    assert results.groups_at(0.5) != results.groups
