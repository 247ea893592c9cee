"""The version of Endive that computes results."""

import subprocess
from functools import cache
from pathlib import Path

from endive import __version__


@cache
def version() -> str:
    """Return the package's version and, if it runs from a checkout, the commit."""
    here = Path(__file__).resolve()
    tracked = ["git", "-C", str(here.parent), "ls-files", "--error-unmatch", here.name]
    describe = ["git", "-C", str(here.parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        subprocess.run(tracked, capture_output=True, timeout=10, check=True)  # noqa: S603 - not a checkout that merely contains us
        commit = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return f"endive {__version__}"
    return f"endive {__version__} ({commit})"
