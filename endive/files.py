"""Atomic and durable writes of single files."""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from endive.errors import ResultError

REMEDY = "free some space or choose another --out"


def make_directory(path: Path) -> None:
    """Create a directory and its parents. `ResultError` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(str(path), f"cannot be made ({error.strerror})", "choose another --out") from error


def write_durably(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary path beside `path`, sync the file and rename it: readers never see half of it.

    Concurrent writers of one file, on one machine or on several that share a directory, do not disturb each other.
    """
    part = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        write(part)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    except OSError as error:
        raise ResultError(str(path), f"cannot be written ({error.strerror or error})", REMEDY) from error
    finally:
        with suppress(OSError):  # without permission to list the directory, no file was written
            part.unlink(missing_ok=True)
