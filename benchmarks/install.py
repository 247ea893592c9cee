"""Installed size and import time of the PyIceberg plug-in: before the extras, of the core, and of each extra.

    python -m benchmarks.install [--before COMMIT]

Each environment is empty but for the wheel and its packages. Sizes are sums of file sizes. The import time is the
processor time of `import endive.catalog.pyiceberg` in a new interpreter, less the start of the interpreter.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.report import HERE, save, spread

ROOT = HERE.parent
UV = next((str(path) for path in (ROOT / ".uv" / "bin" / "uv",) if path.exists()), "uv")
REPEATS = 9
LAST_WITHOUT_EXTRAS = "3a2b045"
EXTRAS = ("", "sim", "report", "spark", "all")


def run(*words: str, cwd: Path = ROOT) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True)


def wheel_of(commit: str | None, folder: Path) -> Path:
    """Build the wheel of a commit, or of the working tree."""
    source = ROOT
    if commit is not None:
        source = folder / "source"
        source.mkdir()
        run("sh", "-c", f"git archive {commit} | tar -x -C {source}")
    run(UV, "build", "--wheel", "--quiet", "--out-dir", str(folder), str(source))
    return next(folder.glob("*.whl"))


def environment(wheel: Path, extra: str, folder: Path) -> Path:
    """Install a wheel with an extra into a new environment; return its Python."""
    run(UV, "venv", "--quiet", "--python", sys.executable, str(folder))
    python = folder / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", str(python), f"{wheel}[{extra}]" if extra else str(wheel))
    return python


def size_bytes(python: Path) -> int:
    packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
    return sum(
        path.stat().st_size for path in packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )


def seconds(command: Sequence[str]) -> list[float]:
    """Return the processor time of a command, several times, after one that warms the caches.

    Processor time, since other programs may use the machine.
    """
    samples = []
    for _ in range(REPEATS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, cwd="/")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        samples.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return samples[1:]


def measure(name: str, wheel: Path, extra: str, folder: Path) -> dict[str, object]:
    python = environment(wheel, extra, folder / "environment")
    bare = median(seconds([str(python), "-c", ""]))
    imported = [each - bare for each in seconds([str(python), "-c", "import endive.catalog.pyiceberg"])]
    packages = sum(1 for _ in (python.parent.parent / "lib").glob("python*/site-packages/*.dist-info"))
    found: dict[str, object] = {
        "install": name,
        "packages": packages,
        "size_mb": round(size_bytes(python) / 1e6, 1),
        "plug_in_import_cpu_s": spread(imported),
        "help_cpu_s": round(median(seconds([str(python.parent / "endive"), "--help"])), 3),
    }
    print(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", default=LAST_WITHOUT_EXTRAS)
    before = parser.parse_args().before
    rows = []
    for extra in (None, *EXTRAS):
        with tempfile.TemporaryDirectory() as folder:
            wheel = wheel_of(before if extra is None else None, Path(folder))
            name = f"endive at {before}" if extra is None else f"endive[{extra}]" if extra else "endive"
            rows.append(measure(name, wheel, extra or "", Path(folder)))
    print(save("install", {"python": sys.version.split()[0], "repeats": REPEATS, "installs": rows}))


if __name__ == "__main__":
    main()
