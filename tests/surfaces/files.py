"""A small configuration, and the command line as a user meets it."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from endive.cli import main
from endive.sim.config.configuration import Settings, parse_configuration

SMALL = """
[simulation]
duration_ms = 60_000
seed = 1

[storage]
provider = "s3"
profiles = "measured"

[catalog]
type = "instant"

[transaction]
inter_arrival = { scale = 500 }
runtime = { value = 1000 }
operation_types = { fast_append = 1.0 }
"""

_LAUNCH = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from endive.cli import main; sys.argv[0] = 'endive'; main()"
)
COMMAND = (sys.executable, "-c", _LAUNCH)
"""`endive` as a process of its own. A test runner may be started with Ctrl-C ignored; the command must not be."""


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `endive` in a directory, as a process of its own."""
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def small(*overrides: str) -> Settings:
    """Return the small configuration with these values in the place of its own."""
    return parse_configuration(SMALL, "small.toml", overrides)


def only_result(directory: Path) -> Path:
    """Return the one result that was written below a directory."""
    (path,) = directory.glob("experiments/*/*/results.parquet")
    return path


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs `endive` in this process, in a directory of its own that holds `small.toml`."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(directory)
        self.write("small.toml", SMALL)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def __call__(self, *arguments: str) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["endive", *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        captured = self._capsys.readouterr()
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)
