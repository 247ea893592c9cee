"""The examples run, and print exactly what stands beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_prints_its_out(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(script)]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert finished.stderr == ""
    assert finished.stdout == script.with_suffix(".out").read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == []  # an example leaves nothing behind


def test_every_out_has_its_example() -> None:
    assert [path.stem for path in SCRIPTS] == sorted(path.stem for path in EXAMPLES.glob("*.out"))
