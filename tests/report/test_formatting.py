"""Numbers, names and sentences of the report."""

from pathlib import Path

import numpy as np
import pytest

from endive.report.formatting import NONE, label_of, moment, number, share, sort_key, title_of, with_interval
from endive.report.groups import ReportGroup, groups_of
from endive.report.headline import headline_of
from endive.report.reading import read_results
from tests.report.builder import SCALE, Grid, write_results


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123456, "0.0123"), (1.0, "1.00"), (19.94, "19.9"), (1234.5, "1,234"), (0, "0"), (None, NONE), (np.nan, NONE)],
)
def test_a_number_has_three_digits_and_no_exponent(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("mean", "half_width", "text"),
    [(1.9803, 0.0481, "1.980 ± 0.048"), (7587.3, 571.0, "7,587 ± 571"), (2.5, None, "2.50"), (2.5, 0.0, "2.50")],
)
def test_a_mean_has_as_many_places_as_its_interval(mean: float, half_width: float | None, text: str) -> None:
    assert with_interval(mean, half_width) == text


def test_a_share_is_a_percentage() -> None:
    assert (share(0.9512), share(None)) == ("95.1 %", NONE)


def test_values_become_labels() -> None:
    values = (10.0, 0.25, True, np.bool_(False), "s3", None, 1e6)

    assert [label_of(value) for value in values] == ["10", "0.25", "true", "false", "s3", NONE, "1000000"]


def test_text_is_ordered_as_written_and_else_by_name_with_numbers_by_size() -> None:
    mixes = ["100 % fast append", "50 % fast append", "90 % fast append"]

    assert sorted(["azurex", "s3"], key=lambda value: sort_key(value, '["s3", "azurex"]')) == ["s3", "azurex"]
    assert sorted(mixes, key=sort_key) == [mixes[1], mixes[2], mixes[0]]
    assert sorted([10.0, None, 9.0], key=sort_key) == [9.0, 10.0, None]


def test_keys_become_titles_with_units() -> None:
    assert title_of("catalog.num_tables") == "Tables"
    assert title_of("transaction.retry_backoff.base_ms") == "Transaction retry backoff base (ms)"


def test_a_moment_is_readable() -> None:
    assert moment("2026-01-02T03:04:05+00:00") == "2 January 2026, 03:04 UTC"
    assert moment("yesterday") == "yesterday"


def test_the_headline_names_the_best_and_the_worst_series_and_each_provider(groups: tuple[ReportGroup, ...]) -> None:
    headline = headline_of(groups[0])
    sustainable = groups[0].series.set_index("series")["usable_committed_per_s"]

    assert f"({sustainable.idxmin()})" in headline.sentence
    assert f"({sustainable.idxmax()})" in headline.sentence
    assert [provider for provider, _ in headline.providers] == ["s3", "s3x", "azurex"]
    assert "(1 table) to" in headline.providers[0][1]


def test_the_headline_of_one_series_names_the_load_that_fails(groups: tuple[ReportGroup, ...]) -> None:
    fails = groups[1].series["fails_from_load"].item()

    assert headline_of(groups[1]).sentence.endswith(f"failing from {label_of(fails)} arrivals/s.")
    assert headline_of(groups[1]).providers == ()


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (Grid("low", {SCALE: (20.0, 50.0)}), "even the lowest offered load misses 95 % success."),
        (Grid("high", {SCALE: (2000.0, 5000.0)}), "at least 0.50"),
        (Grid("none", {"catalog.num_tables": (1, 2)}, load_key=None), "the offered load does not vary"),
        (Grid("failed", {SCALE: (500.0,)}, failing=frozenset({(0, 1), (0, 2)})), "no run finished"),
    ],
)
def test_the_headline_of_an_unusual_group(tmp_path: Path, grid: Grid, words: str) -> None:
    (group,) = groups_of(read_results(write_results(tmp_path, [grid], seeds=(1, 2))))

    assert words in headline_of(group).sentence
