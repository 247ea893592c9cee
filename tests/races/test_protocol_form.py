"""Protocol code keeps to a form in which a generator's variables are all of its state.

The interleaved driver recognises equal states by the variables of a chain of generators. What is on a frame's
evaluation stack it cannot see: half of an expression around a `yield from`, or the position of a loop's iterator. So

* a `yield from` is all there is to the right of an assignment, or to a `return`, a statement or a condition;
* a loop that asks in its body goes over a `range`, whose position is the loop's variable, or over something whose
  elements differ (named below);
* no comprehension asks.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = [
    *sorted((ROOT / "endive" / "protocol").glob("*.py")),
    *(
        ROOT / "endive" / "kv" / f"{name}.py"
        for name in (
            "log/opening",
            "views",
            "maintenance/compactor",
            "maintenance/garbage_collector",
            "maintenance/claim",
            "clones",
            "sst/lookup",
            "sst/reading",
            "maintenance/check",
            "transaction",
            "log/wal",
            "log/state",
            "log/epochs",
            "log/committing",
            "log/helping",
            "log/combining",
            "log/topics",
            "log/forgetting",
            "log/guests",
            "procedures",
            "recorded",
        )
    ),
    ROOT / "tests" / "races" / "scenarios.py",
    ROOT / "tests" / "races" / "two_phase_scenarios.py",
    ROOT / "tests" / "races" / "helping.py",
    ROOT / "tests" / "races" / "topics.py",
]
DISTINCT = {
    "numbers": "ids of objects, each once",
    "boundaries[:-BOUNDARIES_KEPT]": "ids of objects, each once",
    "blocks_within(index, keys)": "a range",
    "(value, f'{value}+')": "two different keys",
}
"""What a loop that asks may go over besides a `range`: elements differ, so the loop's variable tells the position."""


def parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def asks(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))


def misplaced(tree: ast.AST) -> Iterator[str]:
    above = parents(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.YieldFrom | ast.Yield):
            outer = above[node]
            if not isinstance(outer, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr | ast.If | ast.While):
                yield f"line {node.lineno}: a yield inside of an expression"
        elif isinstance(node, ast.For) and any(map(asks, node.body)):
            over = ast.unparse(node.iter)
            if not over.startswith("range(") and over not in DISTINCT:
                yield f"line {node.lineno}: a loop over {over} that asks"
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) and asks(node):
            yield f"line {node.lineno}: a comprehension that asks"


@pytest.mark.parametrize("path", PROTOCOLS, ids=lambda path: path.name)
def test_all_state_is_in_variables(path: Path) -> None:
    assert list(misplaced(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_requests_outside_of_statements_are_found() -> None:
    faulty = """
def steps(paths):
    total = 1 + (yield from ask(path))
    for path in paths:
        yield from ask(path)
    return [(yield path) for path in paths]
"""
    assert len(list(misplaced(ast.parse(faulty)))) == 4
