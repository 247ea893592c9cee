"""Reads `about.json` and the measures of a sweep, and checks that they are complete."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from endive.drivers.directory import Directory
from endive.errors import ResultError
from endive.report.metrics import BREAKDOWN_COLUMNS, CURVE_COLUMNS, EXPERIMENT_COLUMNS, LATER_COLUMNS, RUN_COLUMNS
from endive.sim.results.labels import TRUST

REMEDY = "run `endive sweep` again; finished runs are kept"


class GroupAbout(BaseModel):
    """One experiment group of a sweep, as described in `about.json`."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    description: str
    varied: tuple[str, ...]
    """Configuration keys that differ within the group, including the key of the offered load."""
    load_key: str | None
    """The key that sets the offered load. None: the load is constant, or several keys set it."""
    load_unit: str
    seeds: tuple[int, ...] = ()
    """Empty: those of the sweep."""
    base: str
    sweep: str
    source: str
    success_target: float | None = None
    """None: that of the sweep."""
    catalogs: tuple[str, ...] = ()
    """Catalogs and their granularity in words. Empty: an older version wrote the plan."""
    trust: Mapping[str, Mapping[str, str]] = Field(default_factory=dict)
    """How far each part of the model was checked. Empty: an older version wrote the plan."""


class About(BaseModel):
    """A sweep, as described in `about.json`."""

    model_config = ConfigDict(frozen=True)

    title: str
    version: str
    created: str
    seeds: tuple[int, ...]
    success_target: float
    groups: tuple[GroupAbout, ...] = Field(alias="families")


@dataclass(frozen=True)
class Results:
    """A sweep's description and its measures as frames."""

    about: About
    runs: pd.DataFrame
    experiments: pd.DataFrame
    curves: pd.DataFrame
    breakdown: pd.DataFrame
    """Metrics by class and by table; empty if there is one of either, or if an older version computed the measures."""


def read_results(place: Directory | Path | str) -> Results:
    """Read the results in a directory. `ResultError` names a file that is missing, damaged or incomplete."""
    directory = Directory.at(place)
    about = _read_about(directory)
    return Results(
        about=about,
        runs=_read_frame(directory, "runs", RUN_COLUMNS),
        experiments=_read_frame(directory, "experiments", EXPERIMENT_COLUMNS),
        curves=_read_frame(directory, "curves", CURVE_COLUMNS),
        breakdown=_read_breakdown(directory),
    )


def _read_about(directory: Directory) -> About:
    path, body = directory.place("about.json"), directory.read("about.json")
    if body is None:
        raise ResultError(path, "does not exist", "name a directory that `endive sweep` has written")
    try:
        return About.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ResultError(path, f"is not as expected: {place}: {first['msg']}", REMEDY) from error
    except ValueError as error:
        raise ResultError(path, f"is damaged ({error})", REMEDY) from error


def _read_breakdown(directory: Directory) -> pd.DataFrame:
    if not list(directory.list("measures/breakdown.parquet")):
        return pd.DataFrame(columns=list(BREAKDOWN_COLUMNS))
    return _read_frame(directory, "breakdown", BREAKDOWN_COLUMNS)


def _read_frame(directory: Directory, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    path = f"measures/{name}.parquet"
    table = read_measure(directory, path)
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ResultError(directory.place(path), f"lacks the columns {', '.join(missing)}", REMEDY)
    frame: pd.DataFrame = table.to_pandas()
    for later in LATER_COLUMNS if columns is CURVE_COLUMNS else ():
        if later not in frame.columns:
            frame[later] = None if later == TRUST else math.nan
    return frame


def read_measure(directory: Directory, path: str) -> pa.Table:
    """Read a Parquet file, or a directory of them as Spark writes it."""
    bodies = [body for body in directory.read_all(_files(directory, path)) if body is not None]
    if not bodies:
        raise ResultError(directory.place(path), "does not exist", REMEDY)
    try:
        return pa.concat_tables([pq.ParquetFile(pa.BufferReader(body)).read() for body in bodies])
    except (OSError, pa.ArrowException) as error:
        raise ResultError(directory.place(path), f"cannot be read ({_first_line(error)})", REMEDY) from error


def _files(directory: Directory, path: str) -> list[str]:
    local = directory.local
    if local is None or not (local / path).is_dir():
        return [path]
    return [info.path for info in directory.list(f"{path}/") if info.path.endswith(".parquet")]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
