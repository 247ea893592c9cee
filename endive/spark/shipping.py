"""Sends this package to a cluster's executors, so that their Python needs only its dependencies.

The package travels as an archive that Spark unpacks in the working directory of each executor; `PYTHONPATH` names that
directory, so the daemon finds its module there. The compiled engine is part of it: Numba recognises its files by a hash
of the source and by the processor; on another kind it compiles again.

A complete environment, made with conda-pack or venv-pack, needs no code of ours: docs/spark.md has the two settings.
"""

import tarfile
from collections.abc import Mapping
from pathlib import Path

import endive

FOLDER = "endive-package"
"""Where executors find the package, in their working directory."""

ARCHIVES = "spark.archives"
PYTHON_PATH = "spark.executorEnv.PYTHONPATH"


def package_archive(directory: Path) -> Path:
    """Write the package as it is installed here, with the compiled engine, to an archive in `directory`."""
    source = Path(endive.__file__).parent
    path = directory / "endive.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for file in sorted(source.rglob("*")):
            if file.is_file() and _is_needed(file):
                archive.add(file, f"endive/{file.relative_to(source)}")
    return path


def _is_needed(file: Path) -> bool:
    """Whether executors use a file: everything but the byte code, which Python makes by itself."""
    return file.suffix != ".pyc"


def shipping_settings(archive: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings that send an archive of the package, besides the settings that are given."""
    archives = [*filter(None, [given.get(ARCHIVES)]), f"{archive}#{FOLDER}"]
    paths = [FOLDER, *filter(None, [given.get(PYTHON_PATH)])]
    return {ARCHIVES: ",".join(archives), PYTHON_PATH: ":".join(paths)}
