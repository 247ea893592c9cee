"""PyIceberg's own tests of its catalogs, run against the plug-in.

`catalogs-by-rest` runs the catalogs' tests through PyIceberg's own REST client, on a server of ours.

The suite comes with the source distribution of the PyIceberg that is installed, fetched by the package client of the
machine; `pyiceberg_suite/plugged_in.py` hands its tests our catalog, and `pyiceberg_suite/differences.toml` has the
tests that cannot pass, each with its reason. Without a network the tests here are skipped.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pyiceberg
import pytest

ROOT = Path(__file__).parents[2]
PLUG_IN = Path(__file__).parent / "pyiceberg_suite"

WANTED_BY_THE_SUITE = (
    "datafusion>=53,<54",  # the one that PyIceberg's core is built for
    "fastavro",
    "google-cloud-bigquery",
    "moto[server]",
    "pytest-lazy-fixtures",
    "pytest-mock",
    "requests-mock",
    "thrift",
)
"""Beside what is here already. Only these tests want them, so they are not among the development's dependencies."""

CATALOGS = ["tests/catalog/test_catalog_behaviors.py", "tests/catalog/test_base.py", "tests/cli/test_console.py"]
TABLES = ["tests/table", "tests/io/test_pyarrow.py"]
INTEGRATION = [
    "tests/integration",
    "--ignore=tests/integration/test_reads.py",  # tables that Spark made in the suite's containers
    "--ignore=tests/integration/test_rest_manifest.py",  # the same
    "--ignore=tests/integration/test_rest_scan_planning_integration.py",  # planning by the server
]


class Client:
    """uv, with the environment that runs this test and what else the suite wants."""

    def __init__(self) -> None:
        self._uv = shutil.which("uv") or str(ROOT / ".uv/bin/uv")
        self._options: tuple[str, ...] = ()

    def find(self) -> None:
        """Find out how packages are to be had here, or skip the test."""
        if shutil.which(self._uv) is None:
            pytest.skip("PyIceberg's suite is fetched with uv, which is not here")
        for options in ((), ("--system-certs",)):  # as the Makefile does it
            self._options = options
            done = self.run(["python", "-P", "-c", "import endive, moto, pip"], ROOT, {})
            if done.returncode == 0:
                return
        pytest.skip(f"what PyIceberg's suite needs is not to be had: {done.stdout[-300:]}")

    def run(
        self, command: Sequence[str], folder: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        extra = [part for package in ("pip", *WANTED_BY_THE_SUITE) for part in ("--with", package)]
        return subprocess.run(
            [self._uv, "run", "--quiet", *self._options, "--active", "--no-sync", *extra, *command],
            cwd=folder,
            env=outer | {"VIRTUAL_ENV": sys.prefix, "UV_PROJECT": str(ROOT)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def client() -> Client:
    client = Client()
    client.find()
    return client


@pytest.fixture(scope="module")
def suite(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the PyIceberg that is installed, without the package beside them."""
    folder, version = tmp_path_factory.mktemp("suite"), pyiceberg.__version__
    fetch = ["python", "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "pyiceberg", f"pyiceberg=={version}"]
    done = client.run(fetch, folder, {})
    if done.returncode != 0:
        pytest.skip(f"the source distribution of PyIceberg {version} is not to be had: {done.stdout[-300:]}")
    name = f"pyiceberg-{version}"
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        kept = [
            one for one in archive.getmembers() if one.name.startswith((f"{name}/tests/", f"{name}/pyproject.toml"))
        ]
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder, kept)  # noqa: S202 - filtered, and a release of a dependency
    return folder / name


@pytest.mark.parametrize(
    ("tests", "passed_min", "mode"),
    [
        pytest.param(CATALOGS, 700, "", id="catalogs"),
        pytest.param(TABLES, 140, "", id="tables"),
        pytest.param(INTEGRATION, 500, "", id="integration"),
        pytest.param(CATALOGS[:1], 200, "rest", id="catalogs-by-rest"),
    ],
)
@pytest.mark.campaign  # it fetches packages that no lock holds
@pytest.mark.xdist_group("PyIceberg's suite")
def test_pyiceberg_s_suite(
    client: Client, suite: Path, tmp_path: Path, tests: list[str], passed_min: int, mode: str
) -> None:
    report = tmp_path / "report.xml"
    command = ["python", "-P", "-m", "pytest", "-q", "-p", "plugged_in", "-p", "no:cacheprovider", "--tb=short", "-rs"]

    done = client.run(
        [*command, f"--basetemp={tmp_path / 'places'}", f"--junitxml={report}", *tests],
        suite,
        {"PYTHONPATH": str(PLUG_IN), "TMPDIR": str(tmp_path), "ENDIVE_SUITE": mode},
    )

    assert done.returncode == 0, done.stdout[-20_000:]
    assert _passed(report) >= passed_min  # a suite that skips everything would succeed


def _passed(report: Path) -> int:
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - our own
    return sum(1 for case in cases if len(case) == 0 or case[0].tag.startswith("system"))
