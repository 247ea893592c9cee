"""Opens the results of a sweep wherever they are: in a directory, in a bucket, or in the tables of a catalog."""

from pathlib import Path

from endive.drivers.directory import Directory
from endive.errors import ResultError
from endive.pipeline.directory import ABOUT, SweepDirectory
from endive.pipeline.experiments import consolidate_experiments, has_experiments
from endive.pipeline.results import SweepResults


def open_results(place: Directory | Path | str, sweep: str | None = None, endpoint: str | None = None) -> SweepResults:
    """Return the results in a directory or in a catalog; measures that are missing or out of date are computed.

    A directory that `endive run` has written is one sweep, and gets a `consolidated.parquet`.

    `sweep` chooses one of a catalog's sweeps, by default the most recent. Kept transactions are consolidated on Spark.
    """
    directory = SweepDirectory.at(place, endpoint)
    if directory.read(ABOUT) is None:
        if has_experiments(Path(str(place))):
            return _of_experiments(Path(str(place)))
        if "://" not in str(place):
            raise ResultError(str(directory), "holds no sweep", "name a directory that `endive sweep` has written")
        directory = fetched(str(place), sweep, endpoint)
    update_measures(directory)
    return SweepResults(directory)


def _of_experiments(root: Path) -> SweepResults:
    """Consolidate the experiments of `endive run`; their measures stay in memory."""
    directory = consolidate_experiments(root)
    update_measures(directory)
    return SweepResults(directory)


def fetched(url: str, sweep: str | None = None, endpoint: str | None = None, plan: str | None = None) -> SweepDirectory:
    """Copy a sweep from a catalog into memory: by default the most recent one, with the plan that began last."""
    from endive.pipeline.catalog_tables import catalog_at, fetch, sweeps_in  # noqa: PLC0415 - PyIceberg takes a second

    properties = catalog_at(url, endpoint)
    name = sweep or next(iter(sweeps_in(properties)), "")
    directory = SweepDirectory(f"memory://{name}")
    fetch(properties, name, directory, plan)
    return directory


def update_measures(directory: SweepDirectory) -> None:
    """Compute the measures if they are missing or older than the runs."""
    from endive.pipeline.consolidate import consolidate, is_current  # noqa: PLC0415 - PySpark takes a second to load

    if is_current(directory):
        return
    if SweepResults(directory).about.get("keep") != "transactions":
        consolidate(directory, None)
        return
    from endive.spark.session import spark_session  # noqa: PLC0415

    with spark_session() as spark:
        consolidate(directory, spark)
