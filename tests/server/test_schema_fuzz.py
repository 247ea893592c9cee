"""A fuzz of every operation from Iceberg's own description of the protocol, by Schemathesis: no answer is a 5xx.

The description, `open-api/rest-catalog-open-api.yaml` of Apache Iceberg, is in no package: the variable
`ICEBERG_OPENAPI` names a copy of it, and without one the test is skipped. Schemathesis is installed into `build/`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.test_compatibility_kit import serving

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "schemathesis"
SECONDS = 240


def installed() -> Path:
    program = HOME / "bin" / "schemathesis"
    if not program.exists():
        uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
        for command in (
            [uv, "venv", "--quiet", "--python", sys.executable, str(HOME)],
            [uv, "pip", "install", "--quiet", "--python", str(HOME / "bin" / "python"), "schemathesis>=4"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"Schemathesis cannot be installed: {done.stderr[-500:]}")
    return program


@pytest.mark.campaign
def test_no_request_of_the_description_leads_to_a_server_error(tmp_path: Path) -> None:
    given = os.environ.get("ICEBERG_OPENAPI")
    if given is None:
        pytest.skip("ICEBERG_OPENAPI names no copy of Iceberg's rest-catalog-open-api.yaml")
    description = tmp_path / "api.yaml"
    description.write_text(Path(given).read_text().replace("/v1/{prefix}/", "/v1/"))  # one warehouse has no prefix
    with serving(str(tmp_path / "lake"), tmp_path) as address:
        command = [str(installed()), "run", str(description), "--url", address, "--checks", "not_a_server_error"]
        command += ["--phases", "coverage,fuzzing", "--max-examples", "15", "--max-time", str(SECONDS), "--seed", "7"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stdout[-3000:]
    assert "Tested: " in done.stdout
