"""PyIceberg's private names: each exists in the installed version, and one module uses them."""

import ast
import re
from importlib import import_module
from inspect import getsource
from pathlib import Path

import pytest

import endive
from endive.catalog import iceberg

PACKAGE = Path(endive.__file__).parent
PRIVATE = re.compile(r"_[a-zA-Z]\w*")


@pytest.mark.parametrize("name", iceberg.PRIVATE_NAMES)
def test_a_private_name_exists(name: str) -> None:
    module, _, path = name.partition(":")
    found: object = import_module(module)
    for part in path.split("."):
        assert hasattr(found, part), f"PyIceberg no longer has {name}; endive.catalog.iceberg uses it"
        found = getattr(found, part)


@pytest.mark.parametrize("name", iceberg.PRIVATE_ATTRIBUTES)
def test_a_private_attribute_exists(name: str) -> None:
    module, _, path = name.partition(":")
    owner, attribute = path.split(".")
    source = getsource(getattr(import_module(module), owner))
    assert re.search(rf"\b{attribute}\b", source), f"PyIceberg no longer has {name}; endive.catalog.iceberg uses it"


def test_no_other_module_uses_private_names() -> None:
    known = {name.rpartition(":")[2].rpartition(".")[2] for name in iceberg.PRIVATE_NAMES + iceberg.PRIVATE_ATTRIBUTES}
    known -= {"_table", "_io", "_commit"}  # also names of the catalog's own
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path == Path(iceberg.__file__) or "pyiceberg" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg"):
                found += [f"{path}: {one.name}" for one in node.names if PRIVATE.fullmatch(one.name)]
            elif isinstance(node, ast.Attribute) and node.attr in known:
                found.append(f"{path}: {node.attr}")
    assert found == []
