"""Processes killed with SIGKILL under load, fighting for one store in a local directory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def outcome(url: str, kills: int, seed: int) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.store.killing", url, str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    print(found)  # noqa: T201 - how much was tried is a result
    return found


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    found = outcome((tmp_path / "store").as_uri(), kills=100, seed=1)

    assert (found["missing"], found["torn"], found["faults"]) == ([], [], [])
    assert int(str(found["acknowledged"])) > 100
    assert int(str(found["kills"])) >= 100
