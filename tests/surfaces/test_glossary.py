"""The glossary: its lists are complete, its terms are defined once, and the documents or the code use them."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from endive.catalog.model.grants import Privilege
from endive.sim.operations import OPERATION_TYPES

ROOT = Path(__file__).resolve().parent.parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"


def entries() -> list[tuple[str, str]]:
    """Return terms and meanings; a row for several terms gives its meaning to each."""
    rows = [line.split(" | ") for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    terms = [(row[0].removeprefix("| "), row[1]) for row in rows]
    return [(term, meaning) for names, meaning in terms if names != "term" for term in re.split(r", | / ", names)]


@cache
def prose() -> str:
    """Return the text of the documents, except the glossary, and of the package, in lower case."""
    documents = [path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if path != GLOSSARY]
    files = (*documents, *(ROOT / "endive").rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r"\s+", " ", text.replace("*", "")).lower()


def test_a_term_is_defined_once() -> None:
    assert [term for term, count in Counter(term for term, _ in entries()).items() if count > 1] == []


@pytest.mark.parametrize("term", [term for term, _ in entries()])
def test_a_term_is_used(term: str) -> None:
    assert re.sub(r" \(.*\)", "", term).strip("`").lower() in prose()


@pytest.mark.parametrize("term", ["operation type", "privilege"])
def test_a_list_of_names_is_complete(term: str) -> None:
    names = {"operation type": OPERATION_TYPES, "privilege": tuple(Privilege)}[term]
    assert re.findall(r"`([^`]+)`", dict(entries())[term]) == [str(name) for name in names]
