"""Faults that are planted in the pipeline are found by its tests, without Spark."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.planted_faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    "catalog_tables.py": ("test_catalog_tables",),
    "cost.py": ("test_plan",),
    "curves.py": ("test_curves",),
    "estimates.py": ("test_measures",),
    "plan.py": ("test_plan",),
    "task.py": ("test_task", "test_directory"),
}
"""The tests of each file; of the others: `OF_DIRECTORIES`."""
OF_DIRECTORIES = ("test_directory", "test_measures", "test_consolidate", "test_task")
KILLED_MIN = 0.95


def is_found(tree: Path, file: str, before: str, after: str) -> bool:
    """Plant a fault, run the tests, and remove it again."""
    path = tree / "endive" / "pipeline" / file
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{file} has changed: {before!r}"
    path.write_text(text.replace(before, after), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not campaign"]
    words += [f"tests/pipeline/{name}.py" for name in TESTS.get(file, OF_DIRECTORIES)]
    try:
        done = subprocess.run(
            words, cwd=tree, env={**os.environ, "ENDIVE_WITHOUT_SPARK": "1"}, capture_output=True, check=False
        )
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode in (0, 1), done.stdout.decode()[-2000:]
    return done.returncode == 1


@pytest.mark.campaign
def test_nineteen_of_twenty_planted_faults_are_found(tmp_path: Path) -> None:
    for name in ("endive", "tests", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    survivors = [name for name, fault in FAULTS.items() if not is_found(tmp_path, *fault)]

    assert len(survivors) <= (1 - KILLED_MIN) * len(FAULTS), survivors


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str) -> None:
    file, before, after = FAULTS[name]
    text = (ROOT / "endive" / "pipeline" / file).read_text(encoding="utf-8")

    assert text.count(before) == 1
    compile(text.replace(before, after), file, "exec")
