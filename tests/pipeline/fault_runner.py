"""Runs the pipeline's tests with one planted fault after another: `python -m tests.pipeline.fault_runner [NAME...]`.

One process loads the libraries, the compiled engine and everything of Endive that is below the pipeline; a fork of it
plants a fault in the source of one module as that is imported, and runs the tests of the module. So a fault costs the
tests alone, not the seconds that the imports take, and the files stay as they are.
"""

import importlib
import json
import os
import signal
import sys
import tempfile
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType

import pytest

from endive.spark.daemon import prepare
from tests.pipeline.planted_faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "endive.pipeline"
BELOW = (
    "duckdb",
    "endive.catalog.pyiceberg",
    "endive.spark.session",
    "endive.spark.source.streaming",
    "endive.testing",
)
LONGEST_S = 600
TESTS = {
    "catalog_tables.py": ("test_catalog_tables",),
    "cleaning.py": ("test_directory", "test_catalog_tables"),
    "cost.py": ("test_plan",),
    "curves.py": ("test_curves",),
    "directory.py": ("test_directory", "test_task", "test_measures"),
    "estimates.py": ("test_measures",),
    "plan.py": ("test_plan",),
    "refining.py": ("test_refining",),
    "saved_sweep.py": ("test_consolidate", "test_measures", "test_directory"),
    "task.py": ("test_task", "test_directory"),
}
"""The tests of each file; of the others: `test_measures`."""


class Planted:
    """Finds one module of the pipeline, with a fault in its source."""

    def __init__(self, file: str, before: str, after: str) -> None:
        self.path = ROOT / "endive" / "pipeline" / file
        self.name = f"{PACKAGE}.{self.path.stem}"
        self.source = planted(self.path.read_text(encoding="utf-8"), before, after)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        loader = _Loader(name, str(self.path))
        loader.source = self.source
        return spec_from_file_location(name, self.path, loader=loader)


class _Loader(SourceFileLoader):
    source: str

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def planted(text: str, before: str, after: str) -> str:
    """Return a source with a fault."""
    assert text.count(before) == 1, f"the source has changed: {before!r}"
    return text.replace(before, after)


def is_found(fault: tuple[str, str, str]) -> bool:
    """Whether the tests of a module fail with a fault in it."""
    with tempfile.TemporaryFile() as output:
        process = os.fork()
        if process == 0:
            signal.alarm(LONGEST_S)  # a fault may be an endless loop
            os.dup2(output.fileno(), 1)
            os._exit(_test(fault))
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read().decode()[-3000:]
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, -signal.SIGALRM), said
    return code != pytest.ExitCode.OK


def _test(fault: tuple[str, str, str]) -> int:
    sys.meta_path.insert(0, Planted(*fault))
    files = [f"tests/pipeline/{name}.py" for name in TESTS.get(fault[0], ("test_measures",))]
    words = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not campaign", *files]
    return int(pytest.main(words))


def main(names: list[str]) -> None:
    """Print which of the faults are found, as JSON, one line each."""
    os.environ["ENDIVE_WITHOUT_SPARK"] = "1"
    os.chdir(ROOT)
    prepare()
    for name in BELOW:
        importlib.import_module(name)
    loaded = [name for name in sys.modules if name.startswith(PACKAGE)]
    assert not loaded, f"loaded before a fault could be planted: {loaded}"
    for name in names or FAULTS:
        sys.stdout.write(json.dumps({"fault": name, "found": is_found(FAULTS[name])}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
