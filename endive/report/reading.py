"""Reads `about.json` and the measures of a sweep, and checks that they are complete."""

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from endive.errors import ResultError
from endive.report.metrics import CURVE_COLUMNS, EXPERIMENT_COLUMNS, RUN_COLUMNS

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


def read_results(directory: Path) -> Results:
    """Read the results in `directory`. `ResultError` names a file that is missing, damaged or incomplete."""
    about = _read_about(directory / "about.json")
    measures = directory / "measures"
    return Results(
        about=about,
        runs=_read_frame(measures / "runs.parquet", RUN_COLUMNS),
        experiments=_read_frame(measures / "experiments.parquet", EXPERIMENT_COLUMNS),
        curves=_read_frame(measures / "curves.parquet", CURVE_COLUMNS),
    )


def _read_about(path: Path) -> About:
    try:
        return About.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ResultError(str(path), "does not exist", "name a directory that `endive sweep` has written") from None
    except OSError as error:
        raise ResultError(str(path), f"cannot be read ({error.strerror})", "see to its permissions") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ResultError(str(path), f"is not as expected: {place}: {first['msg']}", REMEDY) from error
    except ValueError as error:
        raise ResultError(str(path), f"is damaged ({error})", REMEDY) from error


def _read_frame(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Read a Parquet file, or a directory of them as Spark writes it."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise ResultError(str(path), "does not exist", REMEDY) from None
    except (OSError, pa.ArrowInvalid) as error:
        raise ResultError(str(path), f"cannot be read ({_first_line(error)})", REMEDY) from error
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ResultError(str(path), f"lacks the columns {', '.join(missing)}", REMEDY)
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
