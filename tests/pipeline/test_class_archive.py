"""The archive of Spark's classes: used if it exists, written by the first session, deleted when nobody uses it."""

import os
from pathlib import Path

import pytest

from endive.spark.class_archive import SWITCH, UNUSED_S, class_archive
from endive.spark.java import find_java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH, raising=False)
    return tmp_path / "cache" / "endive"


def session(tmp_path: Path) -> str:
    """Return the options of a session whose JVM writes an archive if it is told to."""
    with class_archive(find_java().path, tmp_path) as options:
        if "ArchiveClassesAtExit" in options:
            (tmp_path / "classes.jsa").write_bytes(b"classes")
    return options


def test_the_first_session_writes_an_archive_and_the_next_one_uses_it(cache: Path, tmp_path: Path) -> None:
    first, second = session(tmp_path), session(tmp_path)

    (archive,) = cache.iterdir()
    assert archive.read_bytes() == b"classes"
    assert "ArchiveClassesAtExit" in first
    assert f"SharedArchiveFile={archive}" in second


def test_archives_that_no_session_has_used_for_long_are_deleted(cache: Path, tmp_path: Path) -> None:
    cache.mkdir(parents=True)
    unused, used = cache / "spark-0.jsa", cache / "spark-1.jsa"
    for file in (unused, used):
        file.touch()
    os.utime(unused, (0, used.stat().st_mtime - UNUSED_S - 1))

    session(tmp_path)

    assert (unused.exists(), used.exists()) == (False, True)
    (own,) = set(cache.iterdir()) - {used}
    os.utime(own, (0, 0))
    session(tmp_path)
    assert own.stat().st_mtime > 0  # its use is recorded


def test_the_archive_can_be_turned_off(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")

    assert session(tmp_path) == ""
    assert not cache.exists()
