"""Iceberg's own compatibility kit for REST catalogs, against `endive serve` on a directory and on SeaweedFS.

The kit comes from Maven, published as test jars, into `build/`. Without Maven, Java or a network the tests are skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.servers.conftest import KNOWN_KEYS, answers, free_port, keyed_bucket, locked_s3_endpoint, running

__all__ = ["keyed_bucket", "locked_s3_endpoint"]

KIT = Path(__file__).parent / "kit"
JARS = Path(__file__).parents[2] / "build" / "kit-1.11.0"
SUITE = "org.apache.iceberg.rest.RESTCompatibilityKitSuite"
ANY_NAMES = "org.apache.iceberg.rest.AnyNamesKit"
ON_LOCAL_FILES = {"testLoadTableWithMissingMetadataFile(Path)"}
"""Moves a metadata file with Java's own calls for local files: it cannot pass on a bucket, whatever the server does."""

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def jars() -> Path:
    """The kit's jars and our compiled subclass."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"Iceberg's compatibility kit needs {program}, which is not here")
    if not (JARS / "complete-3").exists():
        fetch = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(KIT / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={JARS}",
        ]
        done = subprocess.run(fetch, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"Iceberg's compatibility kit cannot be fetched from Maven: {done.stdout[-500:]}")
        (JARS / "complete-3").touch()
    compile_it = ["javac", "-nowarn", "-cp", f"{JARS}/*", "-d", str(JARS / "classes"), str(KIT / "AnyNamesKit.java")]
    subprocess.run(compile_it, check=True, capture_output=True)
    return JARS


@contextmanager
def serving(url: str, directory: Path, *options: str) -> Iterator[str]:
    """Run `endive serve` on a new catalog, and yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "endive", "serve", url, "--create", "--port", str(port), *options]
    address = f"http://127.0.0.1:{port}"
    settings = {"PYTHONPATH": str(Path(__file__).parents[2]), **KNOWN_KEYS}
    with running(command, lambda: answers(f"{address}/ready"), directory / "server.log", settings=settings):
        yield address


def results(jars: Path, address: str, kit: str, directory: Path, properties: Mapping[str, str]) -> dict[str, str]:
    """Run the kit; return the outcome of every test: `passed`, `skipped`, or the first line of its failure."""
    given = {
        "rck.local": "false",
        "uri": address,
        "warehouse": "lake",
        "rck.requires-namespace-create": "true",  # a table needs a namespace that was created
        "rck.supports-names-with-dot": "true",
        "org.slf4j.simpleLogger.defaultLogLevel": "error",
        **properties,
    }
    command = ["java", "-Xmx700m", *(f"-D{name}={value}" for name, value in given.items())]
    command += ["-cp", f"{jars / 'classes'}:{jars}/*", "org.junit.platform.console.ConsoleLauncher", "execute"]
    command += ["--select-class", kit, "--details", "none", "--disable-banner", "--reports-dir", str(directory)]
    environment = {**os.environ, **KNOWN_KEYS}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = {}
    for file in directory.glob("*.xml"):
        for case in ET.parse(file).getroot().iter("testcase"):  # noqa: S314 - JUnit's own report
            failure = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
            outcome = "skipped" if case.find("skipped") is not None else "passed"
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            found[name] = outcome if failure is None else (failure.text or "").strip().partition("\n")[0]
    assert found, done.stdout + done.stderr
    return found


def failures(found: Mapping[str, str]) -> dict[str, str]:
    return {name: outcome for name, outcome in found.items() if outcome not in ("passed", "skipped")}


def passed(found: Mapping[str, str]) -> int:
    return list(found.values()).count("passed")


def test_the_kit_passes_on_a_directory(jars: Path, tmp_path: Path) -> None:
    with serving(str(tmp_path / "lake"), tmp_path) as address:
        found = results(jars, address, SUITE, tmp_path / "reports", {})

    assert failures(found) == {}
    assert passed(found) >= 144  # as many as Iceberg's reference server


def test_the_kit_passes_with_names_of_any_kind(jars: Path, tmp_path: Path) -> None:
    with serving(str(tmp_path / "lake"), tmp_path) as address:
        found = results(jars, address, ANY_NAMES, tmp_path / "reports", {})

    assert failures(found) == {}
    named = {name for name, outcome in found.items() if outcome == "passed"}
    for words in ("Nested", "WithDot", "WithSlash"):
        assert any(words in name for name in named), words


def test_the_kit_passes_on_s3(jars: Path, tmp_path: Path, keyed_bucket: str) -> None:
    options = ("--endpoint", keyed_bucket, "--property", "s3.region=us-east-1")
    with serving("s3://keyed/kit", tmp_path, *options) as address:
        found = results(jars, address, SUITE, tmp_path / "reports", {})

    wrong = {name for name in failures(found) if name.partition(".")[2] not in ON_LOCAL_FILES}
    assert {name: found[name] for name in wrong} == {}
    assert passed(found) >= 143
