"""Processes that share one store in a local directory, some killed with SIGKILL."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def shared_by_processes(url: str, processes: int, kills: int, endpoint: str = "") -> dict[str, object]:
    """Run `tests.store.sharing` and return what it found."""
    command = [sys.executable, "-m", "tests.store.sharing", url, str(processes), str(kills), "1"]
    command += [endpoint] if endpoint else []
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    print(found)  # noqa: T201 - how much was tried is a result
    return found


@pytest.mark.slow
def test_eight_processes_lose_no_increment(tmp_path: Path) -> None:
    found = shared_by_processes((tmp_path / "store").as_uri(), processes=8, kills=40)

    assert (found["wrong"], found["faults"]) == ([], [])
    assert found["total"] == found["sum"]
    assert int(str(found["acknowledged"])) > 100
    assert int(str(found["kills"])) >= 40
