"""Experiments on disk: a file called `results.parquet` is always a finished run."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from endive.errors import ResultError
from endive.sim.config.configuration import load_configuration
from endive.sim.results.columns import SCHEMA
from endive.sim.results.experiment import Experiment, find_results, load_result
from tests.surfaces.files import SMALL, small


def test_the_directory_is_named_by_label_hash_and_seed(tmp_path: Path) -> None:
    experiment = Experiment(small(), tmp_path)

    result = experiment.run(7)

    assert result.path == tmp_path / f"small-{small().experiment_hash()}" / "7" / "results.parquet"
    assert (experiment.directory / "cfg.toml").read_text(encoding="utf-8") == SMALL
    assert (experiment.directory / "version.txt").read_text(encoding="utf-8").startswith("endive 0")


def test_a_result_read_back_is_the_result_that_was_run(tmp_path: Path) -> None:
    experiment = Experiment(small(), tmp_path)
    assert experiment.load(1) is None

    result = experiment.run(1)
    again = experiment.load(1)

    assert again is not None
    assert again.table is not None
    assert again.table.equals(result.table)
    assert (again.about, again.summary, again.counters) == (result.about, result.summary, result.counters)


def test_the_file_has_exactly_the_specifications_columns_and_says_what_it_is(tmp_path: Path) -> None:
    result = Experiment(small(), tmp_path).run(1)

    schema = pq.read_schema(result.path)

    assert schema.names == SCHEMA.names
    about = json.loads(schema.metadata[b"endive"])
    assert (about["label"], about["seed"], about["cost_model"], about["provider"]) == ("small", 1, "spec", "s3")
    assert about["seq"] == about["counters"]["cas_success"]


def test_a_configuration_changed_by_overrides_is_kept_as_it_was_in_force(tmp_path: Path) -> None:
    experiment = Experiment(small("catalog.num_tables=3"), tmp_path)
    experiment.prepare(1)

    assert "num_tables = 3" in (experiment.directory / "cfg.toml").read_text(encoding="utf-8")


def test_the_window_is_that_of_the_configuration_that_looks(tmp_path: Path) -> None:
    Experiment(small(), tmp_path).run(1)

    whole = Experiment(small("simulation.trim_start_ms=0", "simulation.trim_end_ms=0"), tmp_path).load(1)

    assert whole is not None
    assert whole.about["window_ms"] == [0.0, 60_000.0]


def test_an_output_path_that_cannot_be_written_is_found_before_the_run(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    told: list[float] = []

    with pytest.raises(ResultError, match="choose another --out"):
        Experiment(small(), blocked).run(1, told.append)

    assert told == []


def test_a_write_that_fails_leaves_no_part_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_table: object, where: Path, **_: object) -> None:
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    experiment = Experiment(small(), tmp_path)

    with pytest.raises(ResultError, match="No space left on device"):
        experiment.run(1)

    assert list(experiment.result_path(1).parent.iterdir()) == []


def test_a_file_is_complete_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink().name))

    Experiment(small(), tmp_path).run(1)

    assert [name.split(".")[1] for name in synced] == ["cfg", "version", "results"]
    assert all(name.startswith(".") and name.endswith(".part") for name in synced)


def test_results_are_found_by_file_seed_and_experiment(tmp_path: Path) -> None:
    experiment = Experiment(small(), tmp_path)
    paths = [experiment.run(seed).path for seed in (1, 2)]

    assert paths[0] is not None
    assert find_results(paths[0]) == [paths[0]]
    assert find_results(paths[0].parent) == [paths[0]]
    assert find_results(experiment.directory) == paths


def test_a_place_without_results_says_where_there_are_some(tmp_path: Path) -> None:
    experiment = Experiment(small(), tmp_path)
    experiment.run(1)

    with pytest.raises(ResultError, match=f"name one of {experiment.directory}"):
        find_results(tmp_path)
    with pytest.raises(ResultError, match="no such file or directory"):
        find_results(tmp_path / "nothing")


def test_a_directory_in_the_place_of_a_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="is a directory"):
        load_result(tmp_path)


def test_an_experiment_with_a_profile_of_ones_own_can_be_run_again_from_its_directory(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    rack = "[rack]\nread = { value = 5 }\nwrite = { value = 7 }\ncas = { value = 9 }\n"
    (tmp_path / "profiles" / "mine.toml").write_text(rack, encoding="utf-8")
    own = SMALL.replace('provider = "s3"', 'provider = "rack"\nprofile_file = "profiles/mine.toml"')
    (tmp_path / "own.toml").write_text(own.replace('profiles = "measured"', ""), encoding="utf-8")
    experiment = Experiment(load_configuration(str(tmp_path / "own.toml")), tmp_path / "experiments")
    experiment.run(1)
    (tmp_path / "profiles" / "mine.toml").unlink()

    again = load_configuration(str(experiment.directory / "cfg.toml"))

    assert again.experiment_hash() == experiment.settings.experiment_hash()
    assert again.profile_set == "own"
