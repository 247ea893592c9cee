"""Results that several tests look at, and a browser to look at pages with."""

from pathlib import Path

import pytest

from endive.report.groups import ReportGroup, groups_of
from endive.report.page import write_report
from endive.report.reading import Results, read_results
from tests.report.builder import BASELINE, CLOSED, PROVIDERS, Grid, write_results

FAILING = Grid(PROVIDERS.name, PROVIDERS.values, PROVIDERS.title, failing=frozenset({(3, 2), (4, 1)}))
"""The group of providers and tables, with two failed runs."""


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over three groups, one of them with two failed runs, with its page."""
    path = write_results(tmp_path_factory.mktemp("sweep"), [FAILING, BASELINE, CLOSED])
    write_report(path)
    return path


@pytest.fixture(scope="session")
def results(directory: Path) -> Results:
    return read_results(directory)


@pytest.fixture(scope="session")
def groups(results: Results) -> tuple[ReportGroup, ...]:
    return groups_of(results)
