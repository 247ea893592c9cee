"""The `endive` command. One file per group of commands; `app` puts them together."""

import os
import sys
from pathlib import Path

from endive.errors import EndiveError, InvariantError
from endive.extras import naming_extra

INTERRUPTED = 130
"""Exit code of shells and Typer for Ctrl-C."""


def main() -> None:
    """Run the command line. Input that is wrong ends with one message and exit code 2, an interruption with 130."""
    try:
        from endive.cli.app import app  # noqa: PLC0415 - takes a second, in which Ctrl-C must be heard as well

        try:
            with naming_extra():
                app()
        finally:
            sys.stdout.flush()  # what cannot be written must be noticed here, not when Python ends
    except InvariantError as error:
        _fail(f"{error}; this is a defect of Endive: please report it with the configuration and the seed", 1)
    except EndiveError as error:
        _fail(str(error), 2)
    except OSError as error:
        _forget_output()
        _fail(f"{error.filename or 'output'}: {error.strerror or error}; free some space or write elsewhere", 2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _forget_output() -> None:
    """Let what is still buffered go nowhere: Python would try once more to write it, and end with a code of its own."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    from endive.cli.console import errors  # noqa: PLC0415

    errors.print(f"[bold red]error:[/] {errors.escape(message)}", soft_wrap=True)
    sys.exit(code)
