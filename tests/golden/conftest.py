"""Unpack the golden data of a release where it was written."""

import fcntl
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = Path("/tmp/endive-golden")  # noqa: S108 - Iceberg metadata holds absolute locations: the data lives where it was written
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


@pytest.fixture(params=RELEASES)
def expected(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The contents of a release's golden data, which is at `ROOT`, a fresh copy for each test."""
    with Path(f"{ROOT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes use the same place
        shutil.rmtree(ROOT, ignore_errors=True)
        with tarfile.open(HERE / f"{request.param}.tar.xz") as archive:
            archive.extractall(ROOT.parent, filter="data")
        yield json.loads((HERE / f"{request.param}.json").read_text(encoding="utf-8"))
        shutil.rmtree(ROOT)
