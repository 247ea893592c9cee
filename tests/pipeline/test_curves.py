"""Sustainable throughput and saturation of a series: the rule on ten rows, then on Spark."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from endive.pipeline.curves import MEANS, Curve, Point, as_closed_loop, curve_of, curves, point_of, value_in_words


def series(*points: tuple[float, float, float]) -> list[Point]:
    """Points of (load, committed, success); what is offered is the load."""
    return [Point(load, load, committed, success, p99_ms=load, overhead=0.5) for load, committed, success in points]


SATURATING = series((1, 1, 1), (2, 2, 1), (4, 3.9, 0.97), (8, 6, 0.75), (16, 7, 0.44), (32, 5, 0.16))


def test_a_series_that_saturates() -> None:
    assert curve_of(SATURATING[::-1], 0.95) == Curve(
        loads=6,
        peak_committed_per_s=7,
        saturation_load=8,  # from 4 to 8 there were 2.1 more commits of 4 offered; from 8 to 16 one of 8
        saturation_committed_per_s=6,
        usable_load=4,
        usable_committed_per_s=3.9,
        usable_p99_ms=4,
        usable_overhead=0.5,
        fails_from_load=8,
    )


def test_a_series_that_sustains_every_load_neither_fails_nor_saturates() -> None:
    curve = curve_of(SATURATING[:3], 0.95)

    assert (curve.usable_load, curve.fails_from_load, curve.saturation_load) == (4, None, None)
    assert curve.saturation_committed_per_s is None


def test_a_series_that_fails_from_the_start_has_no_sustainable_load() -> None:
    curve = curve_of(series((1, 0.5, 0.5), (2, 1, 1)), 0.95)

    assert (curve.usable_load, curve.usable_p99_ms, curve.fails_from_load) == (None, None, 1)


def test_success_that_recovers_at_a_higher_load_does_not_count() -> None:
    curve = curve_of(series((1, 1, 1), (2, 1.8, 0.9), (3, 3, 1)), 0.95)

    assert (curve.usable_load, curve.fails_from_load) == (1, 2)


def test_the_success_target_itself_is_enough() -> None:
    assert curve_of(series((1, 0.95, 0.95)), 0.95).usable_load == 1


def test_saturation_is_the_lowest_load_if_commits_do_not_follow_even_up_to_it() -> None:
    assert curve_of(series((10, 2, 0.2), (20, 2, 0.1)), 0.95).saturation_load == 10


def test_a_step_without_more_offered_load_is_skipped() -> None:
    points = [Point(1.0, 1.0, 1.0, 1.0), Point(1.01, 0.99, 0.98, 1.0), Point(2.0, 2.0, 2.0, 1.0)]

    assert curve_of(points, 0.95).saturation_load is None


def test_no_points_no_curve() -> None:
    assert curve_of([], 0.95) == Curve(0)


def test_more_writers_saturate_when_they_no_longer_bring_more_commits() -> None:
    measured = [Point(n, c, c, 1.0) for n, c in ((1, 10.0), (2, 19.0), (4, 25.0), (8, 26.0))]

    assert curve_of(measured, 0.95).saturation_load is None  # they offer what they commit
    assert curve_of(as_closed_loop(measured), 0.95).saturation_load == 2


def test_writers_that_fail_are_judged_by_their_commits_not_by_the_load_they_offer() -> None:
    measured = [Point(n, 2 * c, c, 0.5) for n, c in ((1, 10.0), (2, 14.0), (4, 16.0))]

    assert [point.offered_per_s for point in as_closed_loop(measured)] == [10.0, 20.0, 40.0]
    assert curve_of(as_closed_loop(measured), 0.4).saturation_load == 1  # the second writer adds 4 of 10 commits


def test_saturation_is_where_commits_stop_not_where_the_offered_load_does() -> None:
    rows = [
        experiment(load, offered_per_s=load, committed_per_s=committed, success=committed / load)
        for load, committed in ((1.0, 1.0), (2.0, 2.0), (4.0, 2.5), (8.0, 2.6))
    ]

    curve = curve_of([point for row in rows if (point := point_of(row))], 0.95)

    assert (curve.saturation_load, curve.saturation_committed_per_s, curve.peak_committed_per_s) == (2.0, 2.0, 2.6)
    assert (curve.usable_load, curve.usable_committed_per_s) == (2.0, 2.0)


def experiment(load: float | None, **changes: Any) -> dict[str, Any]:
    means = dict.fromkeys(MEANS, 1.0) | {"seeds_done": 3, "load": load, "trust": "partly"}
    return means | changes


def test_experiments_without_arrivals_or_done_seeds_are_no_points() -> None:
    assert point_of(experiment(None)) is None
    assert point_of(experiment(2.0, seeds_done=0)) is None
    assert point_of(experiment(2.0, success=None, offered_per_s=0.0)) is None


def test_where_transactions_arrive_and_none_finishes_none_succeeds() -> None:
    point = point_of(experiment(2.0, success=None, committed_per_s=0.0))

    assert point is not None
    assert point.success == 0.0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("storage.provider", "s3", "s3"),
        ("catalog.num_tables", 10, "10 tables"),
        ("catalog.num_tables", 1, "1 table"),
        ("catalog.latency_ms", 12.5, "latency 12.5 ms"),
        ("transaction.retry", 4, "retry 4"),
        ("transaction.runtime.median", 20000.0, "runtime median 20000"),
        ("catalog.table_metadata_inlined", True, "table metadata inlined: yes"),
        ("transaction.retry", None, "retry: default"),
    ],
)
def test_values_in_words(key: str, value: str | float | bool | None, words: str) -> None:
    assert value_in_words(key, value) == words


def test_every_series_of_every_group_has_a_row(spark: SparkSession) -> None:
    scale, tables, writers = "transaction.inter_arrival.scale", "catalog.num_tables", "transaction.writers"
    groups: list[dict[str, Any]] = [
        {"name": "open", "title": "Open", "varied": [tables, scale], "load_key": scale, "load_unit": "arrivals/s"},
        {"name": "closed", "title": "Closed", "varied": [writers], "load_key": writers, "load_unit": "writers"},
    ]
    rows = [
        {"family": "open", tables: n, scale: 1000 / load, writers: None, **experiment(load, success=1 - load / 40 / n)}
        for n in (1, 10)
        for load in (1.0, 10.0)
    ]
    rows += [{"family": "closed", tables: 1, scale: None, writers: n, **experiment(n)} for n in (1.0, 2.0)]
    about = {"success_target": 0.95, "families": groups}
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))

    found = curves(frame, about).toArrow().sort_by([("family", "ascending"), (tables, "ascending")])

    assert found.column_names[:3] == ["family", tables, "series"]  # the groups' load keys are no parameters of a series
    found_rows = [(row["family"], row["series"], row["loads"], row["usable_load"]) for row in found.to_pylist()]
    assert found_rows == [("closed", "Closed", 2, 2.0), ("open", "1 table", 2, 1.0), ("open", "10 tables", 2, 10.0)]
    assert found["saturation_load"].to_pylist()[0] == 1.0


def test_a_load_key_of_one_group_may_be_a_parameter_of_another(spark: SparkSession) -> None:
    writers, tables = "transaction.writers", "catalog.num_tables"
    groups: list[dict[str, Any]] = [
        {"name": "a", "title": "A", "varied": [writers], "load_key": writers, "load_unit": "writers"},
        {"name": "b", "title": "B", "varied": [writers, tables], "load_key": None, "load_unit": "writers"},
    ]
    rows = [{"family": name, writers: n, tables: 1, **experiment(n)} for name in ("a", "b") for n in (1.0, 2.0)]
    about = {"success_target": 0.95, "families": groups}

    found = curves(spark.createDataFrame(pa.Table.from_pylist(rows)), about).toArrow().to_pylist()

    keys = sorted((row["family"], row[writers] or 0.0, row["series"], row["loads"]) for row in found)
    assert keys == [("a", 0.0, "A", 2), ("b", 1.0, "writers 1 · 1 table", 1), ("b", 2.0, "writers 2 · 1 table", 1)]
