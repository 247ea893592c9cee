"""The answer for the fleet of `configs/fleet.toml`, as the README shows it, from `benchmarks/results/fleet.json`."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "fleet.json"
ROWS = 5
"""Ranked advice that is shown."""


def fleet_answer() -> str:
    """Return headroom, hot table, compaction and ranked advice."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    today, capacity, advice = (document["parts"][name] for name in ("run", "capacity", "advise"))
    return "\n".join([*_sentences(today, capacity), "", *_advice(advice)])


def _sentences(today: dict[str, Any], capacity: dict[str, Any]) -> list[str]:
    table, hottest = next(iter(today["tables"].items()))
    compaction, streams = today["classes"]["compaction"], today["classes"]["streams"]
    rate, retries, p99_ms = (hottest[name]["mean"] for name in ("committed_per_s", "retries_mean", "p99_ms"))
    p50_ms, slow_ms = (one["latency.all.p50_ms"]["mean"] for one in (streams, compaction))
    price = today["dollars_per_million_commits"]["mean"]
    return [
        f"- **Headroom.** {_headroom(capacity['streams'])}",
        f"- **The hot table** is table {table}: {rate:.2f} commits/s and the most lost races, {retries:.3f} retries a "
        f"transaction; p99 {p99_ms:,.0f} ms. Streams commit in {p50_ms:,.0f} ms (p50); a million commits cost "
        f"{price:.0f} dollars of requests.",
        f"- **Compaction** barely survives: {_percent(compaction['success'])} of its jobs commit. Its commits take "
        f"{slow_ms / 1000:.1f} s (p50), in which streams commit to the same table, until its retries run out. "
        f"{_compaction(capacity['compaction'])}",
    ]


def _headroom(answer: dict[str, Any]) -> str:
    value = answer["value"]
    return (
        f"You run {answer['today']:.0f} writers; more than 5 % of their commits fail beyond {value['mean']:.0f} ± "
        f"{value['half_width_95']:.0f} †, {answer['headroom']:.0f} times as many."
    )


def _compaction(answer: dict[str, Any]) -> str:
    if not answer["exists"]:
        return "No number of writers that was tried keeps nine of ten."
    value = answer["value"]
    return f"Nine of ten commit up to {value['mean']:.0f} ± {value['half_width_95']:.0f} writers: it has no headroom."


def _advice(advice: dict[str, Any]) -> list[str]:
    rows = [
        f"| {row['rank']} | {row['advice']} | {_points(row['effect'])} | {row['after']['p99_ms']['mean']:,.0f} ms "
        f"| {row['after']['dollars_per_million_commits']['mean']:.1f} | {row['confidence']} |"
        for row in advice["rows"][:ROWS]
    ]
    before = advice["today"]
    now = (
        f"| | as it is ({_percent(before[advice['goal']])}) | | {before['p99_ms']['mean']:,.0f} ms "
        f"| {before['dollars_per_million_commits']['mean']:.1f} | |"
    )
    return ["| | advice | compaction.success † | p99 † | $ † | confidence |", "|---|---|---|---|---|---|", now, *rows]


def _percent(found: dict[str, float]) -> str:
    return f"{100 * found['mean']:.1f} ± {100 * found['half_width_95']:.1f} %"


def _points(effect: dict[str, float]) -> str:
    return f"{100 * effect['mean']:+.1f} ± {100 * effect['half_width_95']:.1f} points"
