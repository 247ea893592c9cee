"""Unpack golden data where it was written."""

import fcntl
import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = Path("/tmp/endive-golden")  # noqa: S108 - Iceberg metadata holds absolute locations: the data lives where it was written
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("golden-*.tar.xz"))


@pytest.fixture(params=RELEASES)
def expected(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The contents of a release's golden data, which is at `ROOT`, a fresh copy for each test."""
    with unpacked(request.param) as contents:
        yield contents


@pytest.fixture
def raised() -> Iterator[dict[str, Any]]:
    """The contents of the data in formats that 0.1.0 refuses, which is at `ROOT`, a fresh copy for each test."""
    with unpacked("raised-formats") as contents:
        yield contents


@contextmanager
def unpacked(name: str) -> Iterator[dict[str, Any]]:
    """Unpack an archive to `ROOT`, and delete it afterwards."""
    with Path(f"{ROOT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes use the same place
        shutil.rmtree(ROOT, ignore_errors=True)
        with tarfile.open(HERE / f"{name}.tar.xz") as archive:
            archive.extractall(ROOT.parent, filter="data")
        yield json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
        shutil.rmtree(ROOT)
