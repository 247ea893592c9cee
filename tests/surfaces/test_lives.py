"""The lives of a commit, a put, a run and a sweep in the documents: every function and file that they name exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LIFE = re.compile(r"^(#+) (The life of .*?)$(.*?)(?=^#+ |\Z)", re.MULTILINE | re.DOTALL)
LINKED = re.compile(r"\[`([A-Za-z_][\w.]*)`\]\(([^)#]+\.py)\)")
NAMED = re.compile(r"`([A-Za-z_][\w.]*)`")
FILES = (".json", ".parquet", ".append")
"""Ends of names that are no functions of the project: files, and PyIceberg's `table.append`."""
LIVES = [
    pytest.param(path, match[3], id=f"{path.stem}: {match[2]}")
    for path in (ROOT / "docs/architecture.md", ROOT / "docs/catalog.md")
    for match in LIFE.finditer(path.read_text(encoding="utf-8"))
]


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Return the functions, classes and attributes that a file defines; those of a class with and without its name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef):
                    names.add(f"{node.name}.{one.name}")
                elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    names |= {one.target.id, f"{node.name}.{one.target.id}"}
    return frozenset(names)


@cache
def defined() -> frozenset[str]:
    return frozenset().union(*map(defined_in, (ROOT / "endive").rglob("*.py")))


def test_there_are_four_lives_and_the_commits_is_told_twice() -> None:
    assert len(LIVES) == 5


@pytest.mark.parametrize(("path", "text"), LIVES)
def test_every_function_of_a_life_exists(path: Path, text: str) -> None:
    linked = LINKED.findall(text)
    missing = [name for name, file in linked if name not in defined_in((path.parent / file).resolve())]
    named = [name for name in NAMED.findall(text) if not name.endswith(FILES)]
    missing += [name for name in named if name not in defined() and not name.startswith("__")]
    assert missing == []
    assert len(named) >= 10


def test_a_function_that_does_not_exist_is_found() -> None:
    assert "TableCommitter.commit" in defined()
    assert "Committer.commit" not in defined()
