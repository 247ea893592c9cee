"""Result files of benchmarks: every part has the commit and the time of its own measurement."""

import json
from pathlib import Path

import pytest

from benchmarks import report


def test_a_part_that_is_measured_again_leaves_the_stamps_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for commit, parts in (("old", ["pool", "bucket"]), ("new", ["bucket"])):
        monkeypatch.setattr(report, "commit", lambda commit=commit: commit)
        path = report.save("sweep", {"pool": 1, "bucket": 2}, parts)

    measured = json.loads(path.read_text(encoding="utf-8"))["measured"]
    assert {part: stamp["commit"] for part, stamp in measured.items()} == {"pool": "old", "bucket": "new"}
    assert all(stamp["time"].startswith("20") for stamp in measured.values())


def test_the_parts_of_the_sweep_results_are_stamped() -> None:
    document = json.loads((report.RESULTS / "sweep.json").read_text(encoding="utf-8"))

    assert set(document["measured"]) == {"commands", "pool", "bucket"}
