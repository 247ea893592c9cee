"""Maintenance, restore and clone in processes that are killed with SIGKILL: every table of every catalog is intact."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.killing_maintenance import ACTIONS, Plan

ROOT = Path(__file__).resolve().parents[2]


def outcome(directory: Path, plan: Plan) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.catalog.killing_maintenance", str(directory), json.dumps(asdict(plan))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    print(plan, found)  # noqa: T201 - how much was tried is a result
    return found


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_that_is_killed_leaves_every_table_intact(action: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, Plan(action, kills=4))

    assert found["problems"] == []


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_hundred_kills_leave_every_table_intact(action: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, Plan(action, kills=100, seed=2))

    assert found["problems"] == []
    assert found["hits"] >= 50
