"""Experiments on disk.

    experiments/<label>-<hash>/cfg.toml                configuration, as it was given
                               version.txt             what computed it
                               <seed>/results.parquet  one row per transaction

A result is written under another name and renamed when it is complete and synced, so that a file called
`results.parquet` is always a finished run. The counters, and what the rows depend on, travel in the file's metadata.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from endive.errors import ResultError
from endive.files import make_directory, write_durably
from endive.sim.config.configuration import Settings
from endive.sim.config.profiles import read_text
from endive.sim.engines import Engine, simulate
from endive.sim.results.statistics import SCHEMA
from endive.sim.results.summary import Summary, Window, summarise
from endive.sim.simulation import Progress
from endive.version import version

METADATA_KEY = b"endive"


@dataclass(frozen=True)
class Figures:
    """What people want to know of a run, whether or not its rows were kept."""

    about: Mapping[str, Any]
    summary: Summary
    counters: Counter[str]
    """Requests by kind and outcomes by name, of the whole run."""
    path: Path | None
    """Where the rows are. None: they were not kept."""


@dataclass(frozen=True)
class Result:
    """A finished run, as read back from its file."""

    path: Path
    table: pa.Table
    about: Mapping[str, Any]
    """What the rows depend on (label, hash, seed, cost model, versions), and the window."""

    def summary(self) -> Summary:
        """Return the figures of the run in its own window."""
        return summarise(self.table, Window(*self.about["window_ms"]))

    def figures(self) -> Figures:
        """Return the figures with what they depend on."""
        return Figures(self.about, self.summary(), Counter(self.about["counters"]), self.path)


@dataclass(frozen=True)
class Experiment:
    """The directory of one configuration."""

    settings: Settings
    root: Path

    @property
    def directory(self) -> Path:
        """Where its runs are."""
        return self.root / f"{self.settings.label}-{self.settings.experiment_hash()}"

    def result_path(self, seed: int) -> Path:
        """Where the result of `seed` is, once it is there."""
        return self.directory / str(seed) / self.settings.values.simulation.output_path

    def load(self, seed: int) -> Result | None:
        """Return the finished run of `seed`, seen through this configuration's window; None if there is none yet."""
        path = self.result_path(seed)
        if not path.exists():
            return None
        result = load_result(path)
        return replace(result, about={**result.about, "window_ms": self._window_ms()})

    def prepare(self, seed: int) -> None:
        """Make the directory of `seed` and describe the experiment in it: what cannot be written fails early."""
        make_directory(self.result_path(seed).parent)
        for name, text in self._descriptions().items():
            write_durably(self.directory / name, partial(Path.write_text, data=text, encoding="utf-8"))

    def _descriptions(self) -> dict[str, str]:
        """Return what is kept beside the results, by file name; `cfg.toml` alone is enough to run them again."""
        texts = {"cfg.toml": self.settings.text, "version.txt": version() + "\n"}
        own = self.settings.values.storage.profile_file
        if own is not None:
            data = tomllib.loads(self.settings.text)
            data["storage"]["profile_file"] = "profiles.toml"
            texts["cfg.toml"] = tomli_w.dumps(data)
            texts["profiles.toml"] = read_text(Path(self.settings.source).parent / own)
        return texts

    def run(self, seed: int, progress: Progress | None = None, engine: Engine = "compiled") -> Result:
        """Run `seed` and keep the result. Nothing that looks finished is there before it is."""
        self.prepare(seed)
        result = simulate(self.settings, seed, engine, progress)
        about = self._about(seed) | {"seq": result.seq, "counters": dict(sorted(result.counters.items()))}
        table = result.table.replace_schema_metadata({METADATA_KEY: json.dumps(about).encode()})
        path = self.result_path(seed)
        write_durably(path, lambda part: pq.write_table(table, part, compression="zstd"))
        return Result(path, table, about)

    def figures(self, seed: int, progress: Progress | None = None) -> Figures:
        """Run `seed` for its figures only: no row is kept in memory or on disk."""
        from endive.sim.engine.run import summarise_compiled  # noqa: PLC0415 - loading Numba takes a second

        summary, counters = summarise_compiled(self.settings, seed, self.settings.window, progress=progress)
        return Figures(self._about(seed), summary, counters, None)

    def _about(self, seed: int) -> dict[str, Any]:
        return {
            "label": self.settings.label,
            "hash": self.settings.experiment_hash(),
            "seed": seed,
            "provider": self.settings.values.storage.provider,
            "profiles": self.settings.profile_set,
            "cost_model": self.settings.values.transaction.cost_model,
            "duration_ms": self.settings.values.simulation.duration_ms,
            "window_ms": self._window_ms(),
            "version": version(),
        }

    def _window_ms(self) -> list[float]:
        return [self.settings.window.start_ms, self.settings.window.end_ms]


ABOUT = {"label": str, "hash": str, "seed": int, "provider": str, "profiles": str, "cost_model": str}
"""What every result says of itself, besides the window and the counters."""


def load_result(path: Path) -> Result:
    """Read a result. `ResultError` if it is damaged or not one of ours."""
    if path.is_dir():
        raise ResultError(str(path), "is a directory", "move it away, or choose another --out")
    if not path.is_file():
        raise ResultError(str(path), "there is no such file", "name a results.parquet, or a directory that holds one")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        problem = f"cannot be read as Parquet ({_first_line(error)})"
        raise ResultError(str(path), problem, "delete it, or run again with --again") from error
    about = _about(table.schema.metadata or {})
    if about is None or not table.schema.equals(SCHEMA):
        raise ResultError(str(path), "is not a result of `endive run`", "name one that is")
    return Result(path, table, about)


def _first_line(error: Exception) -> str:
    """Return what an error says first; Arrow's messages go on for lines."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _about(metadata: Mapping[bytes, bytes]) -> Mapping[str, Any] | None:
    """Return what a result says of itself; None if it does not say it as `endive run` does."""
    try:
        about = json.loads(metadata[METADATA_KEY])
        start_ms, end_ms = map(float, about["window_ms"])
        complete = start_ms < end_ms and dict(about["counters"]) is not None
        return about if complete and all(isinstance(about[name], kind) for name, kind in ABOUT.items()) else None
    except (KeyError, TypeError, ValueError):
        return None


def find_results(place: Path) -> list[Path]:
    """Return the results at `place`: a file, a seed's directory, or an experiment's."""
    if place.is_file():
        return [place]
    if not place.exists():
        raise ResultError(str(place), "there is no such file or directory", "name what `endive run` has written")
    found = sorted(place.glob("*.parquet")) or sorted(place.glob("*/*.parquet"))
    if not found:
        inside = sorted({str(path.parent.parent) for path in place.glob("*/*/*.parquet")})
        remedy = f"name one of {', '.join(inside[:5])}" if inside else "name what `endive run` has written"
        raise ResultError(str(place), "holds no result of its own", remedy)
    return found
