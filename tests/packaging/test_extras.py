"""Extras: each optional module belongs to one, and a command without its extra says which one to install."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer

from endive.cli.later import COMMANDS, LazyGroup
from endive.extras import EXTRA_OF, MissingExtraError, naming_extra

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""Makes modules look as if they were not installed."""

OPTIONAL = frozenset(EXTRA_OF)


def python(code: str, absent: frozenset[str] = OPTIONAL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT.format(absent=set(absent)) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def endive(*words: str, absent: frozenset[str] = OPTIONAL) -> subprocess.CompletedProcess[str]:
    return python(f"import sys; sys.argv = ['endive', *{words!r}]; from endive.cli import main; main()", absent)


def packages_of(extra: str) -> set[str]:
    """The packages of an extra, those of the extras that it includes left out."""
    return {re.split(r"[\[><=~!]", each)[0] for each in PROJECT["optional-dependencies"][extra]} - {"endive"}


def test_every_optional_module_has_the_extra_that_brings_it() -> None:
    names = packages_distributions()

    for module, extra in EXTRA_OF.items():
        assert importlib.util.find_spec(module)
        assert {name.lower().replace("_", "-") for name in names[module]} & packages_of(extra), module


def test_the_extra_all_has_every_other() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]

    assert everything == f"endive[{','.join(sorted(set(extras) - {'all'}))}]"


def test_a_package_is_in_the_core_or_in_extras() -> None:
    core = {re.split(r"[\[><=~!]", each)[0] for each in PROJECT["dependencies"]}

    assert [extra for extra in PROJECT["optional-dependencies"] if packages_of(extra) & core] == []


@pytest.mark.parametrize(
    "module", ["endive", "endive.kv", "endive.catalog", "endive.catalog.pyiceberg", "endive.objects"]
)
def test_the_core_imports_without_any_extra(module: str) -> None:
    result = python(f"import {module}")

    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.extra])
def test_a_command_without_its_extra_says_what_to_install(name: str) -> None:
    words = {
        "config": ("config", "keys"),
        "providers": ("providers",),
        "demo": ("demo",),
        "compare": ("compare", "a", "b"),
    }
    result = endive(*words.get(name, (name, "somewhere")))

    assert result.returncode == 2
    assert f"pip install 'endive[{COMMANDS[name].extra}]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("providers",), ("kv", "--help"), ("catalog", "--help")]
)
def test_the_core_s_commands_work_without_any_extra(words: tuple[str, ...]) -> None:
    result = endive(*words)

    assert result.returncode == 0, result.stderr


def test_the_simulator_works_without_spark_and_charts() -> None:
    others = frozenset(module for module, extra in EXTRA_OF.items() if extra != "sim")

    assert endive("config", "keys", absent=others).returncode == 0


def test_an_extra_is_named_for_what_a_library_user_imports() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'endive\[spark\]'"), naming_extra():
        raise ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql")


def test_other_missing_modules_stay_as_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match="somebody_else"), naming_extra():
        raise ModuleNotFoundError("No module named 'somebody_else'", name="somebody_else")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_list_of_commands_has_each_command_s_own_words(name: str) -> None:
    group = LazyGroup()
    command = group.get_command(typer.Context, name)

    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name].help
