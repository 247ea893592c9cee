"""The tables of docs/catalog.md that come from measurements."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "catalog.json"
NOT_MEASURED = "**Not measured yet**: `python -m benchmarks.catalog`, then `python -m tests.surfaces.test_docs`."
SQL_FILE = "SqlCatalog, SQLite file"
CATALOGS = {
    SQL_FILE: "SQLite file",
    "SqlCatalog, SQLite in memory": "SQLite in memory",
    "endive, before-acknowledgement": "Endive, `before-acknowledgement`",
    "endive, background": "Endive, `background`",
    "endive, background, exclusive writer": "Endive, `background`, `exclusive`",
}
WAYS = {
    ("PyIceberg", "background", "exclusive", "distinct"): "`background`, `exclusive`",
    ("PyIceberg", "background", "exclusive", "one"): "the same, one table",
    ("KVCatalog", "background", "exclusive", "distinct"): "the same, `KVCatalog`",
    ("PyIceberg", "background", "shared", "distinct"): "`background`",
    ("PyIceberg", "background", "shared", "one"): "the same, one table",
    ("KVCatalog", "background", "shared", "distinct"): "the same, `KVCatalog`",
    ("PyIceberg", "before-acknowledgement", "shared", "distinct"): "`before-acknowledgement`",
    ("PyIceberg", "before-acknowledgement", "shared", "one"): "the same, one table",
}
MISSING = "not measured"


def _document() -> dict[str, Any] | None:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _cell(row: dict[str, Any]) -> str:
    refused = f", {100 * row['success']:.0f} % succeed" if row["success"] < 1 else ""
    return f"{_number(row['commits_per_s'])} ({_number(row['p50_ms'])} / {_number(row['p99_ms'])}){refused}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def beside_table() -> str:
    """The catalog beside PyIceberg's SQL catalog, from `benchmarks/results/catalog.json`."""
    document = _document()
    if document is None:
        return NOT_MEASURED
    cases: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    for row in document["rows"]:
        cases.setdefault((row["work"], row["tables"], row["writers"]), {})[row["catalog"]] = row
    lines = [
        [work, tables, str(writers), *(_cell(found[name]) if name in found else MISSING for name in CATALOGS)]
        for (work, tables, writers), found in cases.items()
    ]
    return "\n\n".join([_table(["commits", "tables", "writers", *CATALOGS.values()], lines), _words(document)])


def _words(document: dict[str, Any]) -> str:
    times = {(one["work"], one["tables"], one["writers"], one["catalog"]): one["times"] for one in document["ratios"]}
    said = [
        f"{CATALOGS[catalog]} {times['metadata-only', tables, 8, catalog]:.1f} times ({words})"
        for catalog in list(CATALOGS)[2:]
        for tables, words in (("distinct", "a table each"), ("one", "one table"))
        if ("metadata-only", tables, 8, catalog) in times
    ]
    acknowledged = sum(row["acknowledged"] for row in document["rows"])
    lost = sum(row["lost"] for row in document["rows"])
    load = document["measured"]["beside"]
    cpu_ms = {row["catalog"]: row["cpu_ms_per_commit"] for row in document["rows"] if _is_the_aims(row)}
    return (
        f"Metadata-only commits of 8 writers, beside the SQLite file: {', '.join(said)}. The aim is 10. "
        f"Of {acknowledged:,} acknowledged commits of all of them, {lost} rows or properties were missing afterwards. "
        "A metadata-only commit "
        f"of 8 writers to a table each took {cpu_ms[SQL_FILE]:.1f} ms of a core with the SQLite file, "
        f"{cpu_ms[list(CATALOGS)[2]]:.1f} and {cpu_ms[list(CATALOGS)[3]]:.1f} ms with Endive. Load of the machine, of "
        f"{document['machine']['cores']} cores, before and after: {load['load_average_before']:.0f} and "
        f"{load['load_average_after']:.0f}."
    )


def _is_the_aims(row: dict[str, Any]) -> bool:
    return (row["work"], row["tables"], row["writers"]) == ("metadata-only", "distinct", 8)


def s3_table() -> str:
    """Commits over latencies like S3's, from `benchmarks/results/catalog.json`."""
    document = _document()
    if document is None:
        return NOT_MEASURED
    cells: dict[int, dict[tuple[str, str, str, str], dict[str, Any]]] = {}
    for row in document["s3"]:
        way = row["through"], row["mode"], row.get("writer", "shared"), row["tables"]
        cells.setdefault(row["committers"], {})[way] = row
    lines = [
        [
            str(committers),
            _number(found["PyIceberg", "background", "shared", "distinct"]["commits_per_put"]),
            *(_cell(found[way]) if way in found else MISSING for way in WAYS),
        ]
        for committers, found in cells.items()
    ]
    at_64 = max(row["commits_per_s"] for row in document["s3"] if row["committers"] == 64)
    words = f"The aim is 500 commits a second from 64 committers; the best of these ways had {at_64:.0f}."
    return "\n\n".join([_table(["committers", "commits per PUT", *WAYS.values()], lines), words])


def aging_table() -> str:
    """Costs over a table's age before and now, from `benchmarks/results/aging.json`."""
    labels = json.loads(RESULTS.with_name("aging.json").read_text(encoding="utf-8"))["labels"]
    before = {row["snapshots"]: row for row in labels["before"]["append"]["rows"]}
    rows = [
        "| snapshots | append: requests (sequential) | append: CPU ms | property set: CPU ms "
        "| `load_table`, cold: requests (sequential) | metadata files |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for now in labels["now"]["append"]["rows"]:
        old = before[now["snapshots"]]
        cells = [
            _counts(old, now, "append"),
            f"{old['append_cpu_ms']:.0f} → {now['append_cpu_ms']:.0f}",
            f"{old['property_cpu_ms']:.0f} → {now['property_cpu_ms']:.0f}",
            _counts(old, now, "load"),
            f"{old['metadata_files_bytes'] / 1e6:,.0f} → {now['metadata_files_bytes'] / 1e6:,.0f} MB",
        ]
        rows.append(f"| {now['snapshots']:,} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _counts(old: dict[str, Any], now: dict[str, Any], kind: str) -> str:
    shown = [f"{row[f'{kind}_requests']} ({row[f'{kind}_sequential']})" for row in (old, now)]
    return " → ".join(shown)
