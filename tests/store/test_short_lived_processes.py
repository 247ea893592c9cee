"""Real processes that live for one commit, in a local directory, some killed with SIGKILL."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.short_lived import OPTIONS

ROOT = Path(__file__).resolve().parents[2]


def lives(url: str, processes: int, kills: int, endpoint: str = "") -> None:
    """Run `tests.store.short_lived`, and assert what every run must leave."""
    command = [sys.executable, "-m", "tests.store.short_lived", url, str(processes), str(kills), "1"]
    command += [endpoint] if endpoint else []
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=7200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)  # noqa: T201 - how much was tried is a result
    assert (found["lost"], found["findings"], found["failed"]) == ([], [], 0), done.stderr
    assert found["total"] == found["rows"] >= found["acknowledged"] >= processes - kills
    assert found["killed"] >= kills // 2
    assert found["wal_objects"] <= 6 * OPTIONS.compact_entries
    assert found["runs"] <= 15
    assert found["round_trips_last"] <= 5
    assert (
        found["round_trips_max"] <= 9
    )  # six if the log is compacted meanwhile; more only if entries are deleted as well


@pytest.mark.slow
def test_hundreds_of_short_lived_processes_lose_nothing_and_leave_a_short_log(tmp_path: Path) -> None:
    lives((tmp_path / "store").as_uri(), processes=200, kills=10)


@pytest.mark.campaign
def test_two_thousand_short_lived_processes(tmp_path: Path) -> None:
    lives((tmp_path / "store").as_uri(), processes=2000, kills=100)
