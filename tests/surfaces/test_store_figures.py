"""The figures in docs/store.md are those of the benchmarks' files."""

import json
from pathlib import Path
from typing import Any

from benchmarks.store import table

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_the_table_is_that_of_the_file() -> None:
    assert table(results("store")["results"]) in DOCUMENT


def test_growth_is_that_of_the_file() -> None:
    grown = results("store_growth")
    last = grown["points"][-1]

    assert grown["scanned"] == last["rows"] == 10_000_000
    assert f"{last['rows']:,} rows" in DOCUMENT
    assert f"{last['peak_memory_mb']} MB" in DOCUMENT
