"""The files of `deploy/`, as far as they can be tried here."""

import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("this machine has no systemd-analyze")
    unit = tmp_path / "endive.service"
    # Endive itself need not be installed at the path of the example.
    unit.write_text((DEPLOY / "endive.service").read_text().replace("/opt/endive/bin/endive", "/bin/true"))

    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
