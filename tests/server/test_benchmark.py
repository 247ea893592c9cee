"""The benchmark of the server keeps what it has measured."""

import json
from pathlib import Path

import pytest

from benchmarks import report, server


def test_a_part_is_saved_when_it_ends_and_another_that_fails_discards_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (report, server):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    file = tmp_path / "server.json"
    seen: list[object] = []

    def failing(_quick: bool) -> object:
        seen.append(json.loads(file.read_text())["loads"])
        raise RuntimeError("no such server")

    measures = {"loads": lambda _: {"ms": 1}, "reference": failing, "answers": lambda _: {"us": 2}}
    assert server.run(measures, quick=False) == ["reference"]

    saved = json.loads(file.read_text())
    assert seen == [{"ms": 1}]  # saved before the next part began
    assert (saved["loads"], saved["answers"], saved["reference"]) == ({"ms": 1}, {"us": 2}, None)
    assert server.run({"reference": failing}, quick=False) == ["reference"]
    assert json.loads(file.read_text()) == saved


def test_every_part_has_a_measure() -> None:
    assert tuple(server.MEASURES) == server.PARTS
