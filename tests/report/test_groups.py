"""From measures to the input of charts: parameters, axis, rounded metrics."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from endive.report.groups import ReportGroup, groups_of
from endive.report.reading import Results, read_results
from tests.report.builder import PROVIDERS, SCALE, SCALES_MS, Grid, write_results


def group_of(directory: Path, grid: Grid, seeds: tuple[int, ...] = (1, 2)) -> ReportGroup:
    (group,) = groups_of(read_results(write_results(directory, [grid], seeds)))
    return group


def test_parameters_are_text_in_the_order_of_the_sweep_file_and_numbers_by_size(
    groups: tuple[ReportGroup, ...],
) -> None:
    providers, tables = groups[0].parameters

    assert (providers.title, providers.labels) == ("Provider", ("s3", "s3x", "azurex"))
    assert (tables.title, tables.labels) == ("Tables", ("1", "2", "10"))
    assert set(groups[0].points["catalog_num_tables"]) == {"1", "2", "10"}


def test_the_load_is_the_axis_and_no_parameter(groups: tuple[ReportGroup, ...]) -> None:
    assert [group.axis.title for group in groups] == [
        "Offered load (arrivals/s)",
        "Offered load (arrivals/s)",
        "Writers",
    ]
    assert groups[1].parameters == ()


def test_metrics_are_rounded_to_six_digits_and_intervals_to_three(
    results: Results, groups: tuple[ReportGroup, ...]
) -> None:
    points = groups[0].points.set_index("experiment")
    exact = results.experiments.set_index("experiment").loc[points.index]

    for name in ("success", "all_p99_ms", "committed_per_s"):
        assert points[name].tolist() == pytest.approx(exact[name].tolist(), rel=5e-6, nan_ok=True)
        assert points[f"{name}_ci"].tolist() == pytest.approx(exact[f"{name}_ci"].tolist(), rel=5e-3, nan_ok=True)


def test_saturation_and_sustainable_load_are_marked_on_their_points(groups: tuple[ReportGroup, ...]) -> None:
    group = groups[0]
    marked = group.points[group.points["saturation"]].set_index("series")["load"]
    told = group.series.set_index("series")["saturation_load"].dropna()

    assert marked.to_dict() == told.to_dict()
    assert len(marked) > 2


def test_the_interval_of_the_sustainable_throughput_is_that_of_its_experiment(groups: tuple[ReportGroup, ...]) -> None:
    group = groups[0]
    for _, row in group.series[group.series["usable_load"].notna()].iterrows():
        points = group.points[(group.points["series"] == row["series"]) & (group.points["load"] == row["usable_load"])]
        assert row["usable_committed_per_s_ci"] == points["committed_per_s_ci"].item()


def test_the_series_of_a_group_without_a_full_grid_are_distinguished_by_name(tmp_path: Path) -> None:
    directory = write_results(tmp_path, [PROVIDERS], seeds=(1, 2))
    results = read_results(directory)
    lacking = [
        frame[~((frame["storage.provider"] == "s3") & (frame["catalog.num_tables"] == 2))]
        for frame in (results.experiments, results.curves)
    ]
    (group,) = groups_of(replace(results, experiments=lacking[0], curves=lacking[1]))

    assert [parameter.field for parameter in group.parameters] == ["series"]
    assert len(group.parameters[0].labels) == 8
    assert set(group.points["series"]) == set(group.parameters[0].labels)


def test_without_a_load_the_longest_parameter_is_the_axis(tmp_path: Path) -> None:
    values = {"storage.provider": ("s3", "s3x"), "catalog.num_tables": (1, 2, 4)}
    group = group_of(tmp_path, Grid("retries", values, load_key=None))

    assert (group.axis.title, group.axis.labels) == ("Tables", ("1", "2", "4"))
    assert [parameter.title for parameter in group.parameters] == ["Provider"]


def test_one_experiment_alone_is_its_own_axis(tmp_path: Path) -> None:
    group = group_of(tmp_path, Grid("alone", {}, load_key=None), seeds=(1,))

    assert group.axis.labels == ("alone-0000",)
    assert group.parameters == ()
    assert not group.has_intervals


def test_only_operation_types_with_commits_count(groups: tuple[ReportGroup, ...]) -> None:
    assert groups[0].kinds == ("fast_append", "validated_overwrite")
    assert groups[1].kinds == ("fast_append",)
    assert "fast_append_p99_ms" in groups[0].points
    assert "fast_append_p99_ms" not in groups[1].points  # the same as all


def test_a_group_whose_runs_all_failed_has_no_metrics(tmp_path: Path) -> None:
    grid = Grid("f", {SCALE: SCALES_MS[:2]}, failing=frozenset({(0, 1), (1, 1)}))
    group = group_of(tmp_path, grid, seeds=(1,))

    assert not group.has_metrics
    assert group.extent("committed_per_s") is None


def test_a_parameter_that_some_rows_lack_has_a_label_for_it(tmp_path: Path) -> None:
    results = read_results(write_results(tmp_path, [PROVIDERS], seeds=(1,)))
    frames = [
        frame.assign(**{"catalog.num_tables": tables_or_none(frame)}) for frame in (results.experiments, results.curves)
    ]
    (group,) = groups_of(replace(results, experiments=frames[0], curves=frames[1]))

    assert group.parameters[1].labels == ("1", "2", "–")
    assert group.points["series"].notna().all()


def tables_or_none(frame: pd.DataFrame) -> "pd.Series[float]":
    tables: pd.Series[float] = frame["catalog.num_tables"].astype(float)
    return tables.where(tables < 10)
