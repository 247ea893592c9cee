"""The presets of Endive's catalog against its measured rates: the labels state the errors that are found."""

import json
from typing import Any

import pytest

from benchmarks.presets import cases, simulated
from benchmarks.report import RESULTS
from endive.sim.config.catalogs import load_presets


def stored() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / "presets.json").read_text(encoding="utf-8"))["rows"]
    return rows


def errors(case: str, least: int = 1, most: int = 256) -> list[float]:
    return [row["error"] for row in stored() if row["case"] == case and least <= row["committers"] <= most]


def test_every_measured_rate_is_compared() -> None:
    found = {(row["case"], row["committers"], row["measured_per_s"]) for row in stored()}
    assert found == {(name, count, rate) for name, case in cases().items() for count, rate in case.measured.items()}


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("committers", [16, 64, 256])
def test_the_presets_give_the_stored_rates(name: str, committers: int) -> None:
    (row,) = [one for one in stored() if one["case"] == name and one["committers"] == committers]
    assert round(simulated(cases()[name], committers), 1) == row["simulated_per_s"]


def test_the_labels_state_the_errors() -> None:
    alone, shared = (load_presets()[name].checked for name in ("endive", "endive-shared"))
    assert max(map(abs, errors("endive"))) < 0.11
    assert "1 to 256 committers within 11 %" in alone
    assert max(map(abs, errors("endive-shared", least=16))) < 0.04
    assert "16 to 256 processes within 4 %" in shared
    assert min(errors("endive-shared")) == pytest.approx(-0.42, abs=0.005)
    assert "42 % too low for 2 processes" in shared
    assert max(map(abs, errors("endive, shared writer"))) < 0.25
    assert "(within 25 %)" in shared
