"""Experiments on disk.

    experiments/<label>-<hash>/cfg.toml                configuration, as it was given
                               version.txt             version of Endive that computed it
                               <seed>/results.parquet  one row per transaction

A result is written under another name and renamed when it is complete and synced, so that a file called
`results.parquet` is always a finished run. The file's metadata has the counters and a description of the run.
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
from endive.sim.results.columns import SCHEMA, with_labels
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.prices import dollars_per_million_commits
from endive.sim.results.summary import Summary, Window, summarise
from endive.sim.simulation import Progress
from endive.version import version

METADATA_KEY = b"endive"


@dataclass(frozen=True, eq=False)
class Result:
    """One run: a configuration with one seed."""

    about: Mapping[str, Any]
    """The inputs of the run (label, hash, seed, cost model, versions), and the window."""
    summary: Summary
    counters: Counter[str]
    """Requests by kind and outcomes by name, of the whole run."""
    table: pa.Table | None = None
    """One row for each transaction. None: the rows were not kept."""
    path: Path | None = None
    """The file that holds the rows. None: they were not written."""

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.about["seed"])

    def flat(self) -> dict[str, float | None]:
        """Return the metrics by dotted name, with the price of a million commits."""
        return self.summary.flat() | {DOLLARS: self.about.get(DOLLARS)}

    def with_window(self, window: Window) -> "Result":
        """Return the same run with the metrics of another window."""
        about = {**self.about, "window_ms": [window.start_ms, window.end_ms]}
        return replace(self, about=about, summary=summarise(self.table, window))


def simulate_seed(
    settings: Settings, seed: int, engine: Engine = "compiled", rows: bool = True, progress: Progress | None = None
) -> Result:
    """Run one seed and return its result. `rows=False` keeps only metrics and counters, in little memory."""
    about = _describe(settings, seed)
    if not rows and engine == "compiled":
        from endive.sim.engine.run import summarise_compiled  # noqa: PLC0415 - loading Numba takes a second

        summary, counters = summarise_compiled(settings, seed, settings.window, progress=progress)
        return Result(about | _price(settings, counters), summary, counters)
    result = simulate(settings, seed, engine, progress)
    about |= {"seq": result.seq, "counters": dict(sorted(result.counters.items()))}
    about |= _price(settings, result.counters)
    return Result(about, result.summary(settings.window), result.counters, _labelled(result.table, about, rows))


def _price(settings: Settings, counters: Mapping[str, int]) -> dict[str, float | None]:
    return {DOLLARS: dollars_per_million_commits(settings, counters)}


def _labelled(table: pa.Table, about: Mapping[str, Any], rows: bool) -> pa.Table | None:
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(about).encode()}) if rows else None


def _describe(settings: Settings, seed: int) -> dict[str, Any]:
    return {
        "label": settings.label,
        "hash": settings.experiment_hash(),
        "seed": seed,
        "provider": settings.values.storage.provider,
        "profiles": settings.profile_set,
        "cost_model": settings.cost_models,
        "catalog": settings.catalog_name,
        "trust": settings.trust,
        "duration_ms": settings.values.simulation.duration_ms,
        "window_ms": [settings.window.start_ms, settings.window.end_ms],
        "version": version(),
    }


@dataclass(frozen=True)
class Experiment:
    """The directory of one configuration."""

    settings: Settings
    root: Path

    @property
    def directory(self) -> Path:
        """The directory of its runs."""
        return self.root / f"{self.settings.label}-{self.settings.experiment_hash()}"

    def result_path(self, seed: int) -> Path:
        """Return the path of the result of `seed`, whether or not it exists yet."""
        return self.directory / str(seed) / self.settings.values.simulation.output_path

    def load(self, seed: int) -> Result | None:
        """Return the finished run of `seed`, seen through this configuration's window; None if there is none yet."""
        path = self.result_path(seed)
        return load_result(path).with_window(self.settings.window) if path.exists() else None

    def prepare(self, seed: int) -> None:
        """Make the directory of `seed` and describe the experiment in it, so that an unwritable place fails early."""
        make_directory(self.result_path(seed).parent)
        for name, text in self._descriptions().items():
            write_durably(self.directory / name, partial(Path.write_text, data=text, encoding="utf-8"))

    def _descriptions(self) -> dict[str, str]:
        """Return the files beside the results; `cfg.toml` alone is enough to run them again."""
        texts = {"cfg.toml": self.settings.text, "version.txt": version() + "\n"}
        own = self.settings.values.storage.profile_file
        if own is not None:
            data = tomllib.loads(self.settings.text)
            data["storage"]["profile_file"] = "profiles.toml"
            texts["cfg.toml"] = tomli_w.dumps(data)
            texts["profiles.toml"] = read_text(Path(self.settings.source).parent / own)
        return texts

    def run(self, seed: int, progress: Progress | None = None, engine: Engine = "compiled") -> Result:
        """Run `seed` and write the result. The file gets its name when it is complete."""
        self.prepare(seed)
        result, path = simulate_seed(self.settings, seed, engine, progress=progress), self.result_path(seed)
        write_durably(path, lambda part: pq.write_table(result.table, part, compression="zstd"))
        return replace(result, path=path)


ABOUT = {"label": str, "hash": str, "seed": int, "provider": str, "profiles": str, "cost_model": str}
"""Metadata that every result file has, besides the window and the counters."""


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
        raise ResultError(str(path), problem, "delete it, or run again with --force") from error
    about = _about(table.schema.metadata or {})
    table = with_labels(table)
    if about is None or not table.schema.equals(SCHEMA):
        raise ResultError(str(path), "is not a result of `endive run`", "name one that is")
    return Result(about, summarise(table, Window(*about["window_ms"])), Counter(about["counters"]), table, path)


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message; Arrow's have many."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _about(metadata: Mapping[bytes, bytes]) -> Mapping[str, Any] | None:
    """Return the metadata of a result file; None if it is not one that `endive run` writes."""
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
