"""Tables of the documentation about the model: the presets against measurements, and the engine's CPU time."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def _document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def preset_table() -> str:
    """Return measured and simulated commits per second of each case."""
    rows = [
        f"| {row['case']} | {row['committers']} | {row['measured_per_s']:,.1f} | {row['simulated_per_s']:,.1f} "
        f"| {100 * row['error']:+.0f} %{' (fitted)' if row['fitted'] else ''} |"
        for row in _document("presets")["rows"]
    ]
    return "\n".join(
        ["| case | committers | measured, commits/s | simulated | error |", "|---|---:|---:|---:|---:|", *rows]
    )


def engine_aims_table() -> str:
    """Return the CPU time before sums were drawn and since, beside each aim."""
    document = _document("engine_before")
    rows = [
        f"| {case['case'].rpartition(', CPU s')[0]} | {case['before']['median']:.2f} s | {case['now']['median']:.2f} s "
        f"| {case['aim']} s | {'met' if case['now']['median'] <= case['aim'] else 'not met'} |"
        for case in document["cases"]
    ]
    return "\n".join(["| CPU time | before | now | aim | |", "|---|---:|---:|---:|---|", *rows])
