"""Faults that are planted in the pipeline are found by its tests, without Spark."""

import json
import subprocess
import sys

import pytest

from tests.pipeline.fault_runner import ROOT, planted
from tests.pipeline.planted_faults import FAULTS

KILLED_MIN = 0.95


@pytest.mark.campaign
def test_nineteen_of_twenty_planted_faults_are_found() -> None:
    words = [sys.executable, "-m", "tests.pipeline.fault_runner"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]

    survivors = [outcome["fault"] for outcome in outcomes if not outcome["found"]]

    assert [outcome["fault"] for outcome in outcomes] == list(FAULTS)
    assert len(survivors) <= (1 - KILLED_MIN) * len(FAULTS), survivors


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str) -> None:
    file, before, after = FAULTS[name]
    text = (ROOT / "endive" / "pipeline" / file).read_text(encoding="utf-8")

    compile(planted(text, before, after), file, "exec")
