"""Dollars per million commits, against arithmetic by hand."""

import pytest

from endive.sim.config.configuration import parse_configuration
from endive.sim.results.prices import (
    ANNOUNCED_READS,
    dollars_per_million_commits,
    load_prices,
    requests_per_commit,
)

TEXT = """
storage.provider = "{provider}"
catalog = {catalog}
transaction.inter_arrival.scale = 1000
"""
ATTEMPT = {
    "cas_success": 10,
    "catalog_reads": 10,
    "manifest_list_reads": 10,
    "manifest_file_writes": 10,
    "metadata_reads": 10,
    "manifest_list_writes": 10,
    "metadata_writes": 10,
}


def price(provider: str, catalog: str = "{}", **more: int) -> float | None:
    return dollars_per_million_commits(
        parse_configuration(TEXT.format(provider=provider, catalog=catalog)), ATTEMPT | more
    )


def test_an_append_without_contention_is_four_writes_and_three_reads() -> None:
    assert price("s3") == pytest.approx(4 * 5 + 3 * 0.4)
    assert price("s3x") == pytest.approx(4 * 1.13 + 3 * 0.03)


def test_a_refused_swap_is_billed() -> None:
    assert price("s3", cas_failure=10) == pytest.approx(5 * 5 + 3 * 0.4)


def test_glue_has_prices_of_its_own() -> None:
    assert price("s3", '{ preset = "glue" }') == pytest.approx(3 * 5 + 2 * 0.4 + 2 * 1.0)


def test_a_server_that_writes_metadata_pays_the_stores_prices() -> None:
    assert price("s3", '{ preset = "rest" }') == pytest.approx(3 * 5 + 2 * 0.4 + 5 + 0.4)


def test_commits_that_share_a_batch_share_its_write() -> None:
    """Metadata files follow in the background, so their requests count as well."""
    assert price("s3", '{ preset = "endive" }', batches=2) == pytest.approx(3 * 5 + 2 * 0.4 + 2 / 10 * 5)


def test_processes_that_help_each_other_pay_for_listings_announcements_and_looks() -> None:
    found = price("s3", '{ preset = "endive-shared" }', batches=2, announced_commits=5)
    log = 2 / 10 * (5 + 5) + 5 / 10 * (5 + ANNOUNCED_READS * 0.4) + 0.4
    assert found == pytest.approx(3 * 5 + 2 * 0.4 + log)


def test_requests_of_a_batch_are_counted_once() -> None:
    assert requests_per_commit(ATTEMPT) == pytest.approx(7)
    assert requests_per_commit(ATTEMPT | {"batches": 2}) == pytest.approx(6.2)


def test_an_unknown_price_is_left_out() -> None:
    assert price("azurex") is None
    assert price("s3", '{ type = "service" }') is None  # its work is a write to the store that is not counted
    assert price("s3", cas_success=0) is None


def test_every_price_has_a_date_and_a_source() -> None:
    prices = dict(load_prices())
    rows = [*prices.pop("catalog").values(), *prices.values()]
    assert all(row["date"] and row["source"] for row in rows)
