"""The three starts of the README, as a reader runs them: each block twice, in an empty directory."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pyspark_sockets import close_sockets_of_pyspark
from tests.surfaces.files import CommandLine

README = Path(__file__).resolve().parent.parent.parent / "README.md"


def section(title: str) -> str:
    """Return the text below a heading, up to the next one."""
    found = re.search(rf"^## {title}\n(.*?)^##", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def block(title: str, language: str) -> str:
    """Return the first fenced block of a language in a section."""
    found = re.search(rf"^```{language}\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def run_commands(endive: CommandLine, directory: Path, text: str) -> list[str]:
    """Run the lines of a block of commands; return the output of each `endive`. A failure is raised."""
    printed = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "endive":
            outcome = endive(*words[1:])
            assert outcome.code == 0, outcome.err
            printed.append(outcome.out)
        else:
            subprocess.run(line, shell=True, check=True, cwd=directory)  # noqa: S602 - a line of the README
    return printed


@pytest.mark.slow
def test_the_commands_of_predict_run_twice(endive: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(block("Predict", "toml"), encoding="utf-8")
    commands = block("Predict", "sh")

    once, again = (run_commands(endive, tmp_path, commands) for _ in range(2))

    assert len(once) == 3
    assert all(once)
    assert again == once
    shown = {line.strip() for line in section("Predict").splitlines()}
    assert [line for line in once[-1].splitlines() if line.strip() and line.strip() not in shown] == []


def test_the_program_of_the_catalog_runs_twice(tmp_path: Path) -> None:
    program = block("A catalog on a bucket", "python").replace("file:///tmp/lake", f"file://{tmp_path}/lake")
    command = [sys.executable, "-c", program]

    printed = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)]

    assert printed == ["1\n", "2\n"]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_the_commands_of_sweeps_run_twice(endive: CommandLine, tmp_path: Path) -> None:
    close_sockets_of_pyspark()
    (tmp_path / "mine.toml").write_text(block("Predict", "toml"), encoding="utf-8")
    (tmp_path / "stores.toml").write_text(block("Sweeps", "toml"), encoding="utf-8")
    commands = block("Sweeps", "sh")

    once, again = (run_commands(endive, tmp_path, commands) for _ in range(2))

    assert "s3x · 10 tables" in once[0]
    assert again == once
    assert list((tmp_path / "sweeps" / "stores").rglob("*.svg"))
