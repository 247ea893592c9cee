"""The closed loop against its measurements: the specification of the `measured` profiles."""

import json

import pytest

from benchmarks.closed_loop import FITTED, WRITERS, measurements, simulate
from benchmarks.report import RESULTS

SECONDS = {"s3": 900.0, "s3x": 200.0, "gcp": 14_400.0}
CHECKED = [("s3", "cas"), ("s3x", "cas"), ("s3x", "append"), ("gcp", "cas")]
RATE, POINTS = 0.06, 0.03
"""Errors that the issue of each profile allows: of the rate, and of the share of refused requests."""


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "operation"), CHECKED)
def test_writers_on_one_object_achieve_what_was_measured(provider: str, operation: str) -> None:
    for writers, measured in measurements()[provider][operation].items():
        simulated = simulate(provider, operation, writers, SECONDS[provider])

        assert simulated.throughput == pytest.approx(measured.throughput, rel=RATE), writers
        assert simulated.failure_rate == pytest.approx(measured.failure_rate, abs=POINTS), writers


def test_the_profiles_were_fitted_to_five_numbers_of_writers_only() -> None:
    assert set(FITTED) == {1, 2, 4, 8, 16}


@pytest.mark.parametrize("provider", ["s3", "s3x", "gcp"])
def test_published_latencies_imply_the_published_throughput(provider: str) -> None:
    for by_writers in measurements()[provider].values():
        for writers in WRITERS:
            row = by_writers[writers]
            assert row.implied_throughput == pytest.approx(row.throughput, rel=0.09)


@pytest.mark.parametrize("provider", ["azure", "azurex"])
def test_but_not_those_of_azure_which_is_why_it_is_compared_otherwise(provider: str) -> None:
    for by_writers in measurements()[provider].values():
        assert by_writers[1].implied_throughput > 40 * by_writers[1].throughput


def test_the_table_in_the_documentation_has_every_provider_operation_and_number_of_writers() -> None:
    rows = json.loads((RESULTS / "closed_loop.json").read_text(encoding="utf-8"))["rows"]

    found = {(row["provider"], row["operation"], row["writers"]) for row in rows}
    assert found == {
        (provider, operation, writers)
        for provider, operations in measurements().items()
        for operation in operations
        for writers in WRITERS
    }
