"""Spark's classes as an archive that the JVM maps into memory, instead of parsing and verifying each of them.

The first session of a Java and a PySpark writes the archive when it ends; later sessions start with it. The JVM checks
that the archive fits it and ignores it otherwise.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from endive.spark.java import cache_directories

log = logging.getLogger(__name__)

SWITCH = "ENDIVE_CLASS_ARCHIVE"
"""Variable that turns the archive off, with the value 0: on a machine without 150 MB of cache to spare."""


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
    """Move an archive to its place; replace those of other versions."""
    try:
        if not part.is_file():
            return
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = archive.with_name(f".{archive.name}.{os.getpid()}")
        shutil.copyfile(part, aside)
        aside.replace(archive)
    except OSError as error:  # the next session tries again
        log.info("class_archive_not_kept %s", error)
