"""Sweeps that are killed at random moments, the Spark driver included, and resumed until they end."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan
from endive.pipeline.results import SweepResults
from endive.pipeline.saved_sweep import SavedSweep, one_per_run
from endive.pipeline.sweep_file import load_group
from tests.pipeline.sweeps import expected_rows
from tests.pipeline.test_bucket_sweep import flaky  # noqa: F401 - a fixture
from tests.pipeline.test_command import LONG, descendants
from tests.pipeline.test_execute import present
from tests.servers.conftest import s3_endpoint  # noqa: F401 - a fixture
from tests.servers.refusing import Refusals
from tests.surfaces.files import start

KILLS = int(os.environ.get("ENDIVE_KILLS", "20"))
SEED = int(os.environ.get("ENDIVE_SEED", "17"))
LONGEST_S = 40.0


@pytest.mark.campaign
def test_a_sweep_killed_at_twenty_random_moments_ends_as_if_it_had_not(
    tmp_path: Path,
    flaky: tuple[str, Refusals],  # noqa: F811 - the fixture
) -> None:
    """`ENDIVE_SEED` chooses the moments; half of the kills hit the whole family of processes, half the driver alone."""
    rng, endpoint = random.Random(SEED), flaky[0]
    (tmp_path / "long.toml").write_text(LONG)
    plan = Plan((load_group(str(tmp_path / "long.toml")),))
    far = SweepDirectory("s3://bucket/sweeps/killed", endpoint)
    command = ("sweep", "long.toml", "--out", str(far), "--endpoint", endpoint, "--no-report", "--clean")
    kills = 0
    while kills < KILLS:
        sweep = start(tmp_path, *command)
        deadline = time.monotonic() + rng.uniform(0.0, LONGEST_S)
        while time.monotonic() < deadline and sweep.poll() is None:
            time.sleep(0.05)
        if sweep.poll() is None:
            kills += 1
            for pid in (*(descendants(sweep.pid) if kills % 2 else ()), sweep.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        _, said = sweep.communicate(timeout=300)
        check_nothing_looks_complete(far, plan, is_complete=sweep.returncode == 0)
        if sweep.returncode == 0 and kills < KILLS:  # it ended before its moment: begin another
            far.delete_all("")
    sweep = start(tmp_path, *command)
    _, said = sweep.communicate(timeout=600)

    assert sweep.returncode == 0, said
    rows = SavedSweep(far).runs()
    found = sorted(rows.drop_columns(["cpu_s"]).to_pylist(), key=lambda row: (row["experiment"], row["seed"]))
    assert present(found) == present(expected_rows(plan)), f"ENDIVE_SEED={SEED}"
    assert len(SweepResults(far).measures("runs")) == len(plan.runs)
    assert [info.path for info in far.list(".running/")] == []


def check_nothing_looks_complete(far: SweepDirectory, plan: Plan, is_complete: bool) -> None:
    """Every part is readable and has done runs of the plan only; measures exist only if they are complete."""
    tables = [rows for _, rows in far.read_parts(far.parts())]
    for rows in tables:
        assert {(row["experiment"], row["seed"]) for row in rows.to_pylist()} <= set(plan.runs)
        assert set(rows["status"].to_pylist()) == {"done"}
        assert len(one_per_run(rows)) == len(rows)
    if far.read("measures/inputs.json") is not None:
        assert is_complete or len(SweepResults(far).measures("runs")) == len(plan.runs)
