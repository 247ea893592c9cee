"""Servers that are killed, stopped and cut off under load: every acknowledged commit is there, once.

The load and the failures are in `tests.server.failing_over`, the check of what clients saw in `tests.server.histories`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.failing_over import CUT, KILL, ROOT, STOP
from tests.servers.conftest import ANY_KEYS, s3_endpoint

__all__ = ["s3_endpoint"]

FAILURES = int(os.environ.get("ENDIVE_FAILURES", "100"))
"""Failures of a campaign; the variable is for a look at a few of them."""
A_ROUND = min(FAILURES, 20)
"""Failures on one table: every load has all keys so far, so that a history grows with the square of its length."""


def verdict(directory: Path, plan: dict[str, object]) -> Any:
    """Run the failures in a process of their own, and return what is wrong."""
    command = [sys.executable, "-m", "tests.server.failing_over", str(directory), json.dumps(plan)]
    environment = {**os.environ, **ANY_KEYS, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def require_good(found: Any, acknowledged_min: int) -> None:
    assert found["missing"] == []
    assert found["commits_too_many"] == 0
    assert found["violations"] == []
    assert found["findings"] == []
    assert found["acknowledged"] >= acknowledged_min
    assert found["loads"] >= acknowledged_min


@pytest.mark.slow
def test_killed_and_stopped_servers_on_a_directory(tmp_path: Path) -> None:
    require_good(verdict(tmp_path, {"failures": 2, "kinds": [KILL, STOP]}), acknowledged_min=20)


@pytest.mark.slow
def test_a_server_that_acknowledges_early_is_found_out(tmp_path: Path) -> None:
    found = verdict(tmp_path, {"failures": 1, "kinds": [KILL], "early": True})

    assert found["violations"] or found["missing"]


@pytest.mark.campaign
@pytest.mark.parametrize("writer", ["shared", "exclusive"])
def test_servers_that_fail_in_all_ways_on_a_bucket(tmp_path: Path, s3_endpoint: str, writer: str) -> None:
    plan = {"failures": A_ROUND, "kinds": [KILL, STOP, CUT], "endpoint": s3_endpoint, "writer": writer, "clients": 6}

    for number in range(FAILURES // A_ROUND):
        directory = tmp_path / str(number)
        directory.mkdir()
        require_good(verdict(directory, plan), acknowledged_min=5 * A_ROUND)
