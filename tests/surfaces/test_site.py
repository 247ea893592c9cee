"""`make docs`: the site builds without warnings, and has every part."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_the_site_builds_strictly_and_without_a_network() -> None:
    offline = {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "PATH": str(Path(sys.executable).parent),
    }
    command = [sys.executable, "docs/site/build.py"]

    built = subprocess.run(command, cwd=ROOT, env=offline, capture_output=True, text=True, check=False)

    assert built.returncode == 0, built.stderr
    site = ROOT / "build" / "site"
    for page in ("index", "tutorial", "catalog", "cli", "reference", "decisions/0001-time-in-whole-nanoseconds"):
        assert (site / f"{page}.html").exists()
    reference = (site / "reference.html").read_text(encoding="utf-8")
    assert "EndiveCatalog" in reference
    assert "serve_in_background" in reference
    assert "endive catalog expire" in (site / "cli.html").read_text(encoding="utf-8")
    shutil.rmtree(ROOT / "build" / "site-pages")
