"""Settings for all tests."""

import pytest
from hypothesis import settings

# No test depends on how fast the machine is; a failure prints what replays it.
settings.register_profile("endive", deadline=None, print_blob=True)
settings.load_profile("endive")

LIMIT_S = {"campaign": 3600, "slow": 1200}
"""Time limit of a test by its marker, generous: it ends a test that hangs, and says nothing about speed."""
FAST_LIMIT_S = 300


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test a time limit, unless it has one of its own."""
    if not config.pluginmanager.hasplugin("timeout"):
        return
    for item in items:
        if item.get_closest_marker("timeout") is None:
            limits = [limit for marker, limit in LIMIT_S.items() if item.get_closest_marker(marker)]
            item.add_marker(pytest.mark.timeout(limits[0] if limits else FAST_LIMIT_S))
