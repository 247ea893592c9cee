"""Spark's classes as an archive that the JVM maps into memory, instead of parsing and verifying each of them.

The first session of a Java and a PySpark writes the archive when it ends; later sessions start with it. The JVM checks
that the archive fits it and ignores it otherwise.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from endive.spark.java import cache_directories

log = logging.getLogger(__name__)

SWITCH = "ENDIVE_CLASS_ARCHIVE"
"""Variable that turns the archive off, with the value 0: on a machine without 150 MB of cache to spare."""

UNUSED_S = 30 * 86_400
"""Every environment has an archive of its own; those of environments that are gone should not fill the cache."""


@contextmanager
def class_archive(java: Path, directory: Path) -> Iterator[str]:
    """Provide the Java options that use the archive, or that write it when the JVM of the block ends.

    `java` is the JVM's home; `directory` is the session's own. Without a place for the archive, there are no options.
    """
    home = next(cache_directories())
    archive = home / f"spark-{_key(java)}.jsa"
    if os.environ.get(SWITCH) == "0":
        yield ""
    elif archive.is_file():
        with suppress(OSError):  # another user's cache
            os.utime(archive)
        yield f'"-XX:SharedArchiveFile={archive}" -Xlog:disable -Xlog:all=error:stderr'
    else:
        part = directory / "classes.jsa"
        yield f'"-XX:ArchiveClassesAtExit={part}" -Xlog:disable -Xlog:all=error:stderr'
        _keep(part, archive)


def _key(java: Path) -> str:
    """Return what distinguishes archives: a Java, by its path and age, and a PySpark."""
    program, spark = java / "bin" / "java", Path(pyspark.__file__)
    text = f"{program.resolve()} {program.stat().st_mtime_ns} {spark} {spark.stat().st_mtime_ns} {pyspark.__version__}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _keep(part: Path, archive: Path) -> None:
    """Move an archive to its place, and delete those that no session has used for `UNUSED_S`."""
    try:
        if not part.is_file():
            return
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = archive.with_name(f".{archive.name}.{os.getpid()}")
        shutil.copyfile(part, aside)
        aside.replace(archive)
        for old in archive.parent.glob("spark-*.jsa"):
            if old.stat().st_mtime < archive.stat().st_mtime - UNUSED_S:
                old.unlink()
    except OSError as error:  # the next session tries again
        log.info("class_archive_not_kept %s", error)
