"""Processes that append through PyIceberg and are killed with SIGKILL: what was acknowledged is there exactly once.

An append that was not acknowledged is there as a whole or not at all; one that was refused is not there.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.killing import Plan

ROOT = Path(__file__).resolve().parents[2]


def outcome(directory: Path, plan: Plan) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.catalog.killing", str(directory), json.dumps(asdict(plan))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    print(plan, found["kills"], found["slots"], found["answers"])  # noqa: T201 - how much was tried is a result
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("tables", "beside"), [(1, False), (4, False), (4, True)])
def test_four_processes_that_are_killed_lose_nothing_that_was_acknowledged(
    tables: int, beside: bool, tmp_path: Path
) -> None:
    found = outcome(tmp_path, Plan(processes=4, tables=tables, beside=beside))

    assert found["faults"] == []
    assert found["kills"] == 8 + 4
    assert found["answers"]["acknowledged"] >= 8


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "mode"), [(1, "background"), (2, "background"), (2, "before-acknowledgement")])
def test_processes_that_take_the_catalog_from_each_other_lose_nothing(
    processes: int, mode: str, tmp_path: Path
) -> None:
    found = outcome(tmp_path, Plan(processes, threads=4, tables=2, mode=mode, writer="exclusive"))

    assert found["faults"] == []
    assert found["answers"]["acknowledged"] >= 8


@pytest.mark.campaign
@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
@pytest.mark.parametrize("tables", ["one", "distinct"])
@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (4, 1), (8, 1), (16, 1), (1, 16), (4, 4)])
def test_a_campaign_of_kills(processes: int, threads: int, tables: str, mode: str, tmp_path: Path) -> None:
    count = 1 if tables == "one" else processes * threads
    plan = Plan(processes, threads, count, kills=40, mode=mode, seed=processes * 100 + threads)
    found = outcome(tmp_path, plan)

    assert found["faults"] == []
    assert found["answers"]["acknowledged"] >= 40
