import shutil
from pathlib import Path

import pytest

from tests.surfaces.files import CommandLine
from tests.surfaces.lake import Lake, make_lake


@pytest.fixture
def endive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="session")
def lake_as_made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A lake that tests may spoil, and a copy to restore it from: tables know where they are."""
    directory = tmp_path_factory.mktemp("lakes")
    make_lake(directory / "lake")
    shutil.copytree(directory / "lake", directory / "copy")
    return directory / "lake", directory / "copy"


@pytest.fixture
def filled(lake_as_made: tuple[Path, Path], endive: CommandLine) -> Lake:
    """A lake with `db.events`: partitioned by day and region, two snapshots of four rows each."""
    lake, copy = lake_as_made
    shutil.rmtree(lake)
    shutil.copytree(copy, lake)
    return Lake(endive, lake)
