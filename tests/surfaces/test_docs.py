"""The documents: links resolve, commands parse, and tables that come from the code or from measurements are up to date.

`python -m tests.surfaces.test_docs` writes those tables anew.
"""

import importlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from endive.catalog.settings import SETTINGS, Setting
from endive.cli.app import app
from endive.sim.config.reference import Key, keys
from endive.sim.results.metrics import METRICS
from tests.pyspark_sockets import close_sockets_of_pyspark
from tests.surfaces.catalog_tables import aging_table, beside_table, s3_table
from tests.surfaces.files import CommandLine
from tests.surfaces.fleet_answer import fleet_answer
from tests.surfaces.model_tables import engine_aims_table, preset_table
from tests.surfaces.spark_tables import speed_table

ROOT = Path(__file__).resolve().parent.parent.parent
NOT_OURS = {".venv", ".uv", "node_modules", "experiments"}
DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if not any(part in NOT_OURS or part.startswith(".") for part in path.parts)
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ |    )?(?:\.venv/bin/)?(endive (?!\d).*)$", re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# Links.


def anchors(path: Path) -> set[str]:
    """Return the names that headings get: lower case, words joined by dashes, nothing but letters and digits."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_relative_links_resolve(path: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", text_of(path))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_name_that_links_to_a_source_file_is_defined_there(path: Path) -> None:
    missing = []
    for name, target in re.findall(r"\[`([\w.]+)`\]\(([^)#\s]*endive/[^)#\s]+\.py)\)", text_of(path)):
        source = text_of((path.parent / target).resolve())
        parts = [] if name.endswith(".py") or name.startswith("endive.") else name.split(".")
        missing += [
            name for part in parts if not re.search(rf"(class|def) {part}\b|^\s*{part}\b.*=", source, re.MULTILINE)
        ]
    assert missing == []


def test_every_decision_is_numbered_and_reached_from_the_documents() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(path.name[:4]) for path in decisions]
    assert numbers == sorted(set(numbers))
    for number, path in zip(numbers, decisions, strict=True):
        assert text_of(path).startswith(f"# {number}. ")
        for heading in ("Context", "Decision", "Consequences", "Alternatives refused"):
            assert f"## {heading}\n" in text_of(path)


# Commands.


def commands() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        blocks = [*FENCE.findall(text_of(path)), *re.findall(r"(?:^    .+\n)+", text_of(path), re.MULTILINE)]
        for block in blocks:
            for line in COMMAND.findall(block):
                yield name_of(path), line.partition("  #")[0].strip()


def test_the_readme_shows_commands() -> None:
    shown = {line.split()[1] for document, line in commands() if document == "README.md"}
    assert shown >= {"run", "compare", "capacity"}


@pytest.mark.parametrize(("document", "line"), sorted(set(commands())))
def test_a_command_in_the_documents_parses(document: str, line: str) -> None:
    """The subcommand exists, and so do its options; nothing is run."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while words and hasattr(command, "commands"):
        context = command.make_context("endive", words)  # a group may have options of its own
        words = [*context._protected_args, *context.args]
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    assert command.make_context("endive", words) is not None


@pytest.mark.parametrize(("document", "line"), sorted(set(commands())))
def test_a_file_named_in_a_command_exists(document: str, line: str) -> None:
    files = [word for word in shlex.split(line) if word.startswith(("configs/", "examples/"))]
    assert [file for file in files if not list(ROOT.glob(file))] == []


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_the_readme_shows_what_the_demo_prints(endive: CommandLine) -> None:
    close_sockets_of_pyspark()
    printed = [line.strip() for line in endive("demo").out.splitlines() if line.strip()]
    shown = {line.strip() for line in text_of(ROOT / "README.md").splitlines()}
    assert [line for line in printed[1:] if line not in shown] == []  # the first has a time that depends on the machine


# Names of the source documents.


def named_here() -> list[str]:
    """Return the names in the second column of docs/sources.md."""
    rows = [line.split(" | ") for line in text_of(ROOT / "docs" / "sources.md").splitlines() if line.startswith("| ")]
    return sorted({name for row in rows for name in re.findall(r"`([^`]+)`", row[1])})


@pytest.mark.parametrize("name", named_here())
def test_a_name_on_the_page_of_sources_exists(name: str) -> None:
    if name.startswith("endive."):
        assert resolved(name) is not None
    elif "/" in name:
        assert (ROOT / name).exists()
    else:
        assert {name, f"distribution.{name}"} & {key.name for key in (*keys(), *keys("distribution"))}


def resolved(dotted: str) -> object:
    """Import a module, or an attribute of one."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    return None


# Campaigns.


def test_every_file_with_a_campaign_is_in_the_table_of_campaigns() -> None:
    marked = {name_of(path) for path in (ROOT / "tests").rglob("*.py") if f"mark.{'campaign'}" in text_of(path)}
    table = text_of(ROOT / "docs" / "testing.md").partition("## What only `make")[2].partition("\n## ")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`(tests/\S+\.py)`", row.partition(" | ")[0])}

    assert listed == marked


# Tables that are written by a program.


def key_row(key: Key) -> str:
    meaning, takes = (text.replace("|", "\\|") for text in (key.meaning, key.takes))
    default = f"`{key.default}`" if key.default else ""
    return f"| `{key.name}` | {takes} | {default} | {meaning} |"


def key_table() -> str:
    """Every key of the configuration, as `endive config keys` prints them."""
    return "\n".join(["| key | takes | default | meaning |", "|---|---|---|---|", *map(key_row, keys())])


def metric_table() -> str:
    """Every metric of a run, as `endive.sim.results.metrics` has them."""
    rows = [f"| {one.label} | `{one.name}` | {one.unit} | {one.meaning} | {one.over} |" for one in METRICS]
    return "\n".join(["| printed | name | unit | meaning | of |", "|---|---|---|---|---|", *rows])


def setting_row(setting: Setting) -> str:
    default = f"`{setting.default}`" if setting.default else ""
    return f"| `{setting.name}` | {', '.join(setting.owners)} | {setting.takes} | {default} | {setting.meaning} |"


def setting_table() -> str:
    """Every property under `endive.`, as `endive.catalog.settings` has them."""
    rows = ["| property | of | takes | default | meaning |", "|---|---|---|---|---|"]
    return "\n".join([*rows, *map(setting_row, SETTINGS)])


def closed_loop_row(row: dict[str, Any]) -> str:
    rate = f"{row[row['compared_with']]:.2f}"
    if row["compared_with"] == "implied_throughput":
        rate += f" (published {row['throughput']:.2f})"
    return (
        f"| {row['provider']} | {row['operation']} | {row['writers']} | {rate} | {100 * row['failure_rate']:.1f} % "
        f"| {row['simulated_throughput']:.2f} | {100 * row['simulated_failure_rate']:.1f} % "
        f"| {row['throughput_error_percent'] + 0.0:+.1f} % | {row['failure_rate_error_points'] + 0.0:+.1f} |"
    )


def closed_loop_table() -> str:
    """Measured and simulated, from `benchmarks/results/closed_loop.json`."""
    document = json.loads((ROOT / "benchmarks" / "results" / "closed_loop.json").read_text(encoding="utf-8"))
    return "\n".join(
        [
            "| provider | operation | writers | rate | refused | simulated rate | simulated refused | error | points |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|",
            *(closed_loop_row(row) for row in document["rows"] if row["fitted"]),
        ]
    )


def closed_loop_error_table() -> str:
    """The largest errors of each provider, over all numbers of writers."""
    document = json.loads((ROOT / "benchmarks" / "results" / "closed_loop.json").read_text(encoding="utf-8"))
    rows = ["| provider | operation | largest error of the rate | of the refused share |", "|---|---|---:|---:|"]
    for provider, operation in dict.fromkeys((row["provider"], row["operation"]) for row in document["rows"]):
        errors = [row for row in document["rows"] if (row["provider"], row["operation"]) == (provider, operation)]
        rate, points = (
            max(abs(row[name]) for row in errors) for name in ("throughput_error_percent", "failure_rate_error_points")
        )
        rows.append(f"| {provider} | {operation} | {rate:.1f} % | {points:.1f} points |")
    return "\n".join(rows)


def engine_row(row: dict[str, Any]) -> str:
    scaled = " (scaled)" if row["reference_is_scaled_by_operations"] else ""
    speed = f"{row['compiled_operations_per_s'] / 1e6:.1f} million/s"
    return (
        f"| {row['name']} | {row['transactions']:,} | {row['operations']:,} | {row['compiled']['median']:.3f} s "
        f"| {row['reference']:,.1f} s{scaled} | {row['ratio']:,.0f} | {speed} |"
    )


def engine_table() -> str:
    """Both engines side by side, from `benchmarks/results/engine.json`; a remark where that is not there yet."""
    path = ROOT / "benchmarks" / "results" / "engine.json"
    if not path.exists():
        return "**Not measured yet**: `python -m benchmarks.engine`, then `python -m tests.surfaces.test_docs`."
    document = json.loads(path.read_text(encoding="utf-8"))
    draws = document["nanoseconds_per_draw"]
    return "\n".join(
        [
            "| one simulated hour | transactions | operations | compiled | readable | ratio | operations, compiled |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *map(engine_row, document["cases"]),
            "",
            f"A drawn latency takes {draws['latency']['median']:.1f} ns, its random number alone "
            f"{draws['random number alone']['median']:.1f} ns.",
        ]
    )


GENERATED: dict[str, tuple[str, Callable[[], str]]] = {
    "catalog properties": ("docs/catalog.md", setting_table),
    "keys": ("docs/simulator.md", key_table),
    "metrics": ("docs/simulator.md", metric_table),
    "closed loop": ("docs/simulator.md", closed_loop_table),
    "closed loop errors": ("docs/simulator.md", closed_loop_error_table),
    "engine": ("docs/engine.md", engine_table),
    "engine aims": ("docs/engine.md", engine_aims_table),
    "presets": ("docs/simulator.md", preset_table),
    "catalog beside SQL": ("docs/catalog.md", beside_table),
    "catalog over S3": ("docs/catalog.md", s3_table),
    "catalog over its age": ("docs/catalog.md", aging_table),
    "tables on Spark": ("docs/spark.md", speed_table),
    "fleet": ("README.md", fleet_answer),
}
"""Name of the table, the document that has it, and what writes it."""


def place_of(name: str, text: str) -> tuple[int, int]:
    """Return where the table begins and ends."""
    start = text.index(f"<!-- generated: {name} -->\n") + len(f"<!-- generated: {name} -->\n")
    return start, text.index("<!-- end -->", start)


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_table_is_up_to_date(name: str) -> None:
    document, write = GENERATED[name]
    text = text_of(ROOT / document)
    start, end = place_of(name, text)
    assert text[start:end] == f"\n{write()}\n\n", "run: python -m tests.surfaces.test_docs"


def write_tables() -> None:
    for name, (document, write) in GENERATED.items():
        text = text_of(ROOT / document)
        start, end = place_of(name, text)
        (ROOT / document).write_text(f"{text[:start]}\n{write()}\n\n{text[end:]}", encoding="utf-8")


if __name__ == "__main__":
    write_tables()
