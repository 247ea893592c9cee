"""Settings for all tests, and the browser of those that look at pages."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# No test depends on how fast the machine is; a failure prints what replays it.
settings.register_profile("endive", deadline=None, print_blob=True)
settings.load_profile("endive")

LIMIT_S = {"campaign": 3600, "slow": 1200}
"""Time limit of a test by its marker, generous: it ends a test that hangs, and says nothing about speed."""
FAST_LIMIT_S = 300
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test a time limit, unless it has one of its own."""
    if not config.pluginmanager.hasplugin("timeout"):
        return
    for item in items:
        if item.get_closest_marker("timeout") is None:
            limits = [limit for marker, limit in LIMIT_S.items() if item.get_closest_marker(marker)]
            item.add_marker(pytest.mark.timeout(limits[0] if limits else FAST_LIMIT_S))


@pytest.fixture(scope="session")
def chromium() -> "Iterator[Browser]":
    """A headless Chromium: the one that the machine has. One for a process: Playwright's driver cannot run twice."""
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no Chromium is installed: none of {', '.join(CHROMIUM)} is on the PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()
