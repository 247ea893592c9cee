"""The closed loop on S3 against its measurements: the specification of the `measured` profile."""

import json

import pytest

from benchmarks.closed_loop import WRITERS, measurements, simulate
from benchmarks.report import RESULTS

SECONDS = 300.0


@pytest.mark.slow
@pytest.mark.parametrize("writers", WRITERS)
def test_writers_that_only_swap_on_s3_achieve_what_was_measured(writers: int) -> None:
    measured = measurements()["s3"]["cas"][writers]

    simulated = simulate("s3", "cas", writers, SECONDS)

    assert simulated.throughput == pytest.approx(measured.throughput, rel=0.15)
    assert simulated.failure_rate == pytest.approx(measured.failure_rate, abs=0.04)


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
