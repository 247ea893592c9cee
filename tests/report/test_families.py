"""From measures to what charts need: parameters, axis, rounded figures."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from endive.report.families import Family, families_of
from endive.report.load import Results, load
from tests.report.builder import PROVIDERS, SCALE, SCALES_MS, Grid, write_results


def family_of(directory: Path, grid: Grid, seeds: tuple[int, ...] = (1, 2)) -> Family:
    (family,) = families_of(load(write_results(directory, [grid], seeds)))
    return family


def test_parameters_are_text_in_the_order_of_the_sweep_file_and_numbers_by_size(families: tuple[Family, ...]) -> None:
    providers, tables = families[0].parameters

    assert (providers.title, providers.labels) == ("Provider", ("s3", "s3x", "azurex"))
    assert (tables.title, tables.labels) == ("Tables", ("1", "2", "10"))
    assert set(families[0].points["catalog_num_tables"]) == {"1", "2", "10"}


def test_the_load_is_the_axis_and_no_parameter(families: tuple[Family, ...]) -> None:
    assert [family.axis.title for family in families] == [
        "Offered load (arrivals/s)",
        "Offered load (arrivals/s)",
        "Clients",
    ]
    assert families[1].parameters == ()


def test_figures_are_rounded_to_six_digits_and_intervals_to_three(
    results: Results, families: tuple[Family, ...]
) -> None:
    points = families[0].points.set_index("experiment")
    exact = results.experiments.set_index("experiment").loc[points.index]

    for name in ("success", "all_p99_ms", "committed_per_s"):
        assert points[name].tolist() == pytest.approx(exact[name].tolist(), rel=5e-6, nan_ok=True)
        assert points[f"{name}_ci"].tolist() == pytest.approx(exact[f"{name}_ci"].tolist(), rel=5e-3, nan_ok=True)


def test_saturation_and_usable_load_are_marked_on_their_points(families: tuple[Family, ...]) -> None:
    family = families[0]
    marked = family.points[family.points["saturation"]].set_index("series")["load"]
    told = family.series.set_index("series")["saturation_load"].dropna()

    assert marked.to_dict() == told.to_dict()
    assert len(marked) > 2


def test_the_interval_of_the_usable_throughput_is_that_of_its_experiment(families: tuple[Family, ...]) -> None:
    family = families[0]
    for _, row in family.series[family.series["usable_load"].notna()].iterrows():
        points = family.points[
            (family.points["series"] == row["series"]) & (family.points["load"] == row["usable_load"])
        ]
        assert row["usable_committed_per_s_ci"] == points["committed_per_s_ci"].item()


def test_a_family_that_is_no_full_grid_is_told_apart_by_its_series(tmp_path: Path) -> None:
    directory = write_results(tmp_path, [PROVIDERS], seeds=(1, 2))
    results = load(directory)
    lacking = [
        frame[~((frame["storage.provider"] == "s3") & (frame["catalog.num_tables"] == 2))]
        for frame in (results.experiments, results.curves)
    ]
    (family,) = families_of(replace(results, experiments=lacking[0], curves=lacking[1]))

    assert [parameter.field for parameter in family.parameters] == ["series"]
    assert len(family.parameters[0].labels) == 8
    assert set(family.points["series"]) == set(family.parameters[0].labels)


def test_without_a_load_the_longest_parameter_is_the_axis(tmp_path: Path) -> None:
    values = {"storage.provider": ("s3", "s3x"), "catalog.num_tables": (1, 2, 4)}
    family = family_of(tmp_path, Grid("retries", values, load_key=None))

    assert (family.axis.title, family.axis.labels) == ("Tables", ("1", "2", "4"))
    assert [parameter.title for parameter in family.parameters] == ["Provider"]


def test_one_experiment_alone_is_its_own_axis(tmp_path: Path) -> None:
    family = family_of(tmp_path, Grid("alone", {}, load_key=None), seeds=(1,))

    assert family.axis.labels == ("alone-0000",)
    assert family.parameters == ()
    assert not family.has_intervals


def test_only_operation_types_with_commits_count(families: tuple[Family, ...]) -> None:
    assert families[0].kinds == ("fast_append", "validated_overwrite")
    assert families[1].kinds == ("fast_append",)
    assert "fast_append_p99_ms" in families[0].points
    assert "fast_append_p99_ms" not in families[1].points  # the same as all


def test_where_every_run_failed_there_are_no_figures(tmp_path: Path) -> None:
    grid = Grid("f", {SCALE: SCALES_MS[:2]}, failing=frozenset({(0, 1), (1, 1)}))
    family = family_of(tmp_path, grid, seeds=(1,))

    assert not family.has_figures
    assert family.extent("committed_per_s") is None


def test_a_parameter_that_some_rows_lack_has_a_label_for_it(tmp_path: Path) -> None:
    results = load(write_results(tmp_path, [PROVIDERS], seeds=(1,)))
    frames = [
        frame.assign(**{"catalog.num_tables": tables_or_none(frame)}) for frame in (results.experiments, results.curves)
    ]
    (family,) = families_of(replace(results, experiments=frames[0], curves=frames[1]))

    assert family.parameters[1].labels == ("1", "2", "–")
    assert family.points["series"].notna().all()


def tables_or_none(frame: pd.DataFrame) -> "pd.Series[float]":
    tables: pd.Series[float] = frame["catalog.num_tables"].astype(float)
    return tables.where(tables < 10)
