"""The table of docs/spark.md that comes from measurements."""

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "tables.json"
NOT_MEASURED = "**Not measured yet**: `python -m benchmarks.tables`, then `python -m tests.surfaces.test_docs`."
WAYS = {
    "write": ('write, `format("endive")`', "write_parquet"),
    "read": ('read, `format("endive")`', "read_parquet"),
    "native_read": ("read, `read_native`", "read_parquet"),
}


def speed_table() -> str:
    """Tables beside plain Parquet, from `benchmarks/results/tables.json`."""
    if not RESULTS.exists():
        return NOT_MEASURED
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    seconds = {name: figure["median"] for name, figure in document["seconds"].items()}
    lines = ["| | Endive | plain Parquet | times | aim |", "|---|---:|---:|---:|---:|"]
    for name, (words, beside) in WAYS.items():
        times, aim = document["ratio_to_parquet"][name], document["aim_at_most"][name]
        lines.append(f"| {words} | {seconds[name]:.1f} s | {seconds[beside]:.1f} s | {times:.2f} | {aim} |")
    words = (
        f"{document['rows']:,} rows of {document['columns']} columns on {document['cores']} cores, medians of "
        f"{document['rounds']} rounds. Load of the machine before and after: {document['load_average_before']:.0f} and "
        f"{document['load_average_after']:.0f}; the benchmark itself is about {document['cores']}."
    )
    return "\n".join([*lines, "", words])
