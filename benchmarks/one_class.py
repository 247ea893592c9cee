"""Compare configurations with one class of transactions between a checkout from before classes and this one.

    git clone . ../endive-before && git -C ../endive-before checkout 994c2b9    # the commit before classes
    python -m benchmarks.one_class ../endive-before                            # writes results/one_class.json

Random configurations of the older checkout (`tests/engine/configurations.py` there), as they are and without the
properties that decisions name, and its `configs/` run in both with the compiled engine, the same seed, and this
environment. Every row and counter that both have is compared. A configuration whose results differ must have a property
that a decision names; `REASONS` lists them. One that has none of these properties must give equal results.
"""

import argparse
import json
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.beside import HERE_TREE, run_in
from benchmarks.report import save

Document = Mapping[str, Any]

WRITE = """
import sys, tomllib, tomli_w
from pathlib import Path
from endive.errors import ConfigurationError
from endive.sim.config.configuration import parse_configuration
from tests.engine.configurations import configuration
out, wanted = Path(sys.argv[1]), int(sys.argv[2])

def without(document):  # the properties that decisions name
    storage, catalog, transaction = document["storage"], document["catalog"], document["transaction"]
    storage["profiles"] = "spec"
    catalog.pop("table_groups", None)
    if catalog["type"] == "append":
        for key in [key for key in catalog if key.startswith(("compaction", "log_"))]:
            del catalog[key]
        catalog["type"] = "cas"
    if transaction.get("arrivals") == "closed":
        transaction["writers"] = 1
    transaction["manifest_list_mode"] = "rewrite"
    transaction["manifest_list_growth_bytes"] = 0
    if transaction["cost_model"] == "spec":
        catalog["table_metadata_inlined"] = True
    return document

for path in [*Path("configs").glob("*.toml"), Path("configs/sweeps/base.toml")]:
    (out / f"{path.parent.name}-{path.stem}.toml").write_text(path.read_text())
found = number = 0
while found < wanted:
    text = configuration(number)
    try:
        parse_configuration(text)
        plain = tomli_w.dumps(without(tomllib.loads(text)))
        parse_configuration(plain)
        (out / f"random-{number:04}.toml").write_text(text)
        (out / f"plain-{number:04}.toml").write_text(plain)
        found += 1
    except ConfigurationError:
        pass
    number += 1
"""

RUN = """
import hashlib, json, sys
from pathlib import Path
from endive.errors import ConfigurationError, InvariantError
from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import simulate
results = {}
for path in sorted(Path(sys.argv[1]).glob("*.toml")):
    try:
        settings = parse_configuration(path.read_text(), str(path), ["simulation.duration_ms=60_000"])
        result = simulate(settings, 1, "compiled")
    except (ConfigurationError, InvariantError) as error:
        results[path.stem] = {"error": str(error).splitlines()[-1]}
        continue
    columns = {
        name: hashlib.sha256(repr(result.table[name].to_pylist()).encode()).hexdigest()[:12]
        for name in result.table.column_names
    }
    results[path.stem] = {"rows": result.table.num_rows, "columns": columns, "counters": dict(result.counters)}
print(json.dumps(results))
"""


def _at(document: Document, key: str, otherwise: object = None) -> Any:  # noqa: ANN401 - any TOML value
    found: Any = document
    for name in key.split("."):
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return otherwise if found == {} else found


def _spec_with_metadata(one: Document) -> bool:
    inlined = _at(one, "catalog.table_metadata_inlined", True)
    return _at(one, "transaction.cost_model", "spec") == "spec" and not inlined


REASONS: Mapping[str, Callable[[Document], bool]] = {
    "decision 13: the writers of a closed loop begin one after the other": lambda one: (
        _at(one, "transaction.arrivals") == "closed" and _at(one, "transaction.writers", 1) > 1
    ),
    "decision 14: measured profiles have limits and contention": lambda one: (
        _at(one, "storage.profiles", "spec") == "measured"
    ),
    "decision 15: each pointer has contention of its own": lambda one: _at(one, "catalog.table_groups", 1) > 1,
    "decision 43: a refused append of the log is repeated once": lambda one: _at(one, "catalog.type") == "append",
    "decision 43: entries of manifest lists (ML+)": lambda one: _at(one, "transaction.manifest_list_mode") == "append",
    "decision 43: growth of manifest lists": lambda one: _at(one, "transaction.manifest_list_growth_bytes", 0) > 0,
    "decision 43: table metadata of the specification's model": _spec_with_metadata,
}


def main() -> None:
    """Run every configuration in both checkouts, and say which differ and why."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("before", type=Path, help="the older checkout")
    parser.add_argument("--random", type=int, default=200, help="random configurations")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        _program(options.before, WRITE, place, str(options.random))
        before, now = (_program(tree, RUN, place) for tree in (options.before, HERE_TREE))
        documents = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in Path(place).glob("*.toml")}
    save("one_class", report(documents, json.loads(before), json.loads(now)))


def report(documents: Mapping[str, Document], before: Document, now: Document) -> dict[str, Any]:
    """Return how many configurations are equal, which differ and why, and those that no decision explains."""
    differing = {name: difference for name in documents if (difference := _difference(before[name], now[name]))}
    reasons = {name: [why for why, holds in REASONS.items() if holds(one)] for name, one in documents.items()}
    unexplained = {name: differing[name] for name in differing if not reasons[name]}
    rows = [
        {
            "reason": why,
            "configurations": sum(why in found for found in reasons.values()),
            "differ": sum(why in reasons[name] for name in differing),
            "differ for this reason alone": sum(reasons[name] == [why] for name in differing),
        }
        for why in REASONS
    ]
    plain = [name for name, found in reasons.items() if not found]
    rows.append({"reason": "none", "configurations": len(plain), "differ": len(unexplained)})
    for row in rows:
        print(row)
    return {"configurations": len(documents), "differ": len(differing), "rows": rows, "unexplained": unexplained}


def _difference(before: Document, now: Document) -> str:
    if "error" in before or "error" in now:
        return "" if before == now else f"{before.get('error')} / {now.get('error')}"
    common = [name for name in before["columns"] if name in now["columns"]]
    differing = [name for name in common if before["columns"][name] != now["columns"][name]]
    counters = [name for name, count in before["counters"].items() if now["counters"].get(name, 0) != count]
    return ", ".join([*differing, *counters])


def _program(tree: Path, text: str, *arguments: str) -> str:
    """Run a program with the package of a checkout; return what it prints."""
    printed = run_in(tree, "-c", text, *arguments)
    return printed.splitlines()[-1] if printed else ""


if __name__ == "__main__":
    main()
