from pathlib import Path

import pytest

from tests.surfaces.files import CommandLine


@pytest.fixture
def endive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)
