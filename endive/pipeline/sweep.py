"""Runs a sweep from its file to its measures.

results = run_sweep("configs/sweeps/small.toml")
results.measures("curves").to_pandas()
results.report()
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from endive.drivers.directory import Directory
from endive.errors import ConfigurationError, ResultError
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan
from endive.pipeline.results import SweepResults
from endive.pipeline.sweep_file import ExperimentGroup, Keep, load_group, parse_group
from endive.sim.config.schema import LABEL
from endive.spark.master import parse_master
from endive.wording import counted

if TYPE_CHECKING:
    from endive.pipeline.catalog_tables import Publication
    from endive.spark.starting import StartingSession

Source = str | Path | Mapping[str, Any]
"""A sweep file's path, its text, or its content as a dictionary."""

LIGHT = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""If the JVM only hands out bins and averages a few thousand rows, optimising code costs more time than it saves."""

IN_PROGRESS = "sweeps-in-progress"
"""Folder beside the tables for the plans and markers of sweeps that live in the tables alone, while they run."""

CATALOG_SCHEMES = ("file", "memory", "s3", "gs", "az")


@dataclass(frozen=True)
class SweepProgress:
    """One report of a running sweep."""

    message: str = ""
    """A line for the user; empty: only the counts have changed."""
    is_warning: bool = False
    runs: int = 0
    """Runs finished since the start, of `runs_total`."""
    runs_total: int = 0
    share: float = 0.0
    """Share of the estimated cost that is finished."""


Report = Callable[[SweepProgress], None]


def run_sweep(
    source: Source | Sequence[Source],
    out: str | Path | Directory | None = None,
    *,
    master: str | None = None,
    overrides: Sequence[str] = (),
    seeds: str | Sequence[int] | None = None,
    keep: Keep | None = None,
    catalog: str | None = None,
    endpoint: str | None = None,
    spark: Mapping[str, str] | None = None,
    ship: bool = False,
    refine: int = 0,
    progress: Report | None = None,
) -> SweepResults:
    """Run every experiment of a sweep on Spark and compute its measures. Finished runs are not repeated.

    `source` is a sweep file's path, its text, its content as a dictionary, or several of these. `out` is the sweep's
    directory, by default `sweeps/<name>`: a path that every machine sees, or `s3://`, `gs://`, `az://`, with `endpoint`
    for an S3-compatible server. `master` is a Spark master URL, by default this machine with all its cores.
    `overrides` are configuration keys such as `"catalog.num_tables=10"`; `seeds` and `keep` replace those of the file.
    `catalog` is the URL of a catalog whose tables get the results: with `out` as well, without it alone. `spark` are
    Spark settings, which take precedence over Endive's. `ship` sends this package to the executors. `refine` is the
    number of rounds that add offered loads around the sustainable load of each series. Raises `ConfigurationError`
    with every error of the input, `ResultError` if files cannot be written, and `SparkUnavailableError` if Spark does
    not start.
    """
    plan = plan_sweep(source, overrides, seeds, keep)
    target = target_of(out, plan.groups[0].name, catalog, endpoint)
    return run_refined(plan, target, Where(master, spark or {}, ship), refine, progress)


def plan_sweep(
    source: Source | Sequence[Source],
    overrides: Sequence[str] = (),
    seeds: str | Sequence[int] | None = None,
    keep: Keep | None = None,
) -> Plan:
    """Check every experiment of a sweep and return its plan. `ConfigurationError` lists every error."""
    sources: Sequence[Source] = [source] if isinstance(source, str | Path | Mapping) else source
    changes = {"seeds": seeds if isinstance(seeds, str | None) else list(seeds), "keep": keep}
    given = {key: value for key, value in changes.items() if value is not None}
    return Plan(tuple(_group(one, overrides, given) for one in sources))


def _group(source: Source, overrides: Sequence[str], changes: Mapping[str, Any]) -> ExperimentGroup:
    if isinstance(source, Mapping):
        try:
            return parse_group(tomli_w.dumps(source), _name(source), overrides, changes)
        except TypeError as error:
            raise ConfigurationError("sweep", [f"cannot be written as TOML: {error}"]) from error
    if isinstance(source, str) and "\n" in source:
        return parse_group(source, "sweep.toml", overrides, changes)
    return load_group(str(source), overrides, changes)


def _name(content: Mapping[str, Any]) -> str:
    """Return a file name for a sweep given as a dictionary: its title, if that can be one."""
    title = str(content.get("title", "")).lower().replace(" ", "_")
    return f"{title}.toml" if LABEL.fullmatch(title) else "sweep.toml"


def check_catalog(url: str | None) -> None:
    """Raise `ConfigurationError` for a catalog URL that no object store understands; a plain path is a directory."""
    scheme, mark, _ = (url or "").partition("://")
    if mark and scheme not in CATALOG_SCHEMES:
        known = ", ".join(f"{name}://" for name in CATALOG_SCHEMES)
        raise ConfigurationError(f"catalog {url!r}", [f"unknown scheme {scheme!r}; known: {known}"])


@dataclass(frozen=True)
class Target:
    """Where the results go."""

    directory: SweepDirectory
    catalog: str | None = None
    """URL of the catalog whose tables get the results."""
    alone: str | None = None
    """Name of a sweep whose results are in the tables alone: its directory is for the duration of this start only."""

    @property
    def is_alone(self) -> bool:
        """Whether the results are in the tables alone."""
        return self.alone is not None

    @property
    def name(self) -> str:
        """The sweep's name in the tables."""
        return self.alone or self.directory.name

    @contextmanager
    def in_progress(self) -> Iterator[SweepDirectory]:
        """Provide the directory; delete it at the end if the results are in the tables alone."""
        try:
            yield self.directory
        finally:
            if self.is_alone:
                with suppress(ResultError):  # must not hide the outcome; `--clean` deletes it
                    self.directory.delete_all("")

    @contextmanager
    def publication(self) -> "Iterator[Publication | None]":
        """Provide the tables, ready to be written; None without a catalog."""
        if self.catalog is None:
            yield None
            return
        from endive.pipeline.catalog_tables import Publication  # noqa: PLC0415 - PyIceberg takes a second to load

        with Publication(self.catalog, self.name, self.directory, self.is_alone) as publication:
            yield publication


def target_of(out: str | Path | Directory | None, name: str, catalog: str | None, endpoint: str | None) -> Target:
    """Return where the results of the sweep `name` go."""
    check_catalog(catalog)
    if catalog is None or out is not None:
        return Target(SweepDirectory.at(out or Path("sweeps") / name, endpoint), catalog)
    # Each start has a folder of its own: the one that ends first deletes no other's.
    folder = f"{in_progress(catalog, name)}/{secrets.token_hex(4)}"
    return Target(SweepDirectory(folder, endpoint), catalog, alone=name)


def in_progress(catalog: str, name: str) -> str:
    """Return the folder for the starts of a sweep that lives in tables alone."""
    return f"{catalog.rstrip('/')}/{IN_PROGRESS}/{name}"


@dataclass(frozen=True)
class Where:
    """Where and how Spark runs."""

    master: str | None = None
    """None: this machine with all its cores."""
    settings: Mapping[str, str] = field(default_factory=dict)
    ship: bool = False
    """Whether to send this package to the executors, whose Python has its dependencies only."""


def run_refined(
    plan: Plan, target: Target, where: Where, rounds: int = 0, progress: Report | None = None
) -> SweepResults:
    """Run a plan, and refine it in so many rounds, all in one Spark session."""
    if not rounds:
        return run_plan(plan, target, where, progress)
    report = progress or (lambda _: None)
    with _starting(plan, where, report) as starting:
        from endive.pipeline.refining import refined  # noqa: PLC0415 - PySpark takes a second to load

        starting.session()
        results = run_plan(plan, target, where, progress)
        for number in range(1, rounds + 1):
            larger = refined(plan, results.measures("experiments"))
            if larger is None:
                report(SweepProgress("no series has loads to refine"))
                break
            more = len(larger.experiments) - len(plan.experiments)
            report(SweepProgress(f"round {number} of {rounds}: {counted(more, 'offered load')} more"))
            plan, results = larger, run_plan(larger, target, where, progress)
    return results


def run_plan(
    plan: Plan,
    target: Target,
    where: Where | None = None,
    progress: Report | None = None,
) -> SweepResults:
    """Run a plan and compute its measures."""
    report, where = progress or (lambda _: None), where or Where()
    parse_master(where.master)
    check_catalog(target.catalog)
    with target.in_progress() as directory:
        digest = directory.prepare(plan)  # a write error should appear before Spark starts
        with _starting(plan, where, report) as starting:
            results = _run(plan, target, digest, starting, report)
    if target.catalog:
        place = f"{target.catalog}: sweep.runs and the other tables of the namespace `sweep`"
        report(SweepProgress(f"published in {place}"))
    return SweepResults(results)


def _run(plan: Plan, target: Target, digest: str, starting: "StartingSession", report: Report) -> SweepDirectory:
    """Run a prepared plan; return the directory with its measures."""
    # Numba and the rest of PySpark take seconds to load: while Java starts.
    from endive.pipeline.consolidate import consolidate  # noqa: PLC0415
    from endive.pipeline.execute import Finished, execute  # noqa: PLC0415

    directory = target.directory
    done = directory.done(plan)
    _compile_engine(report)
    with target.publication() as publication:
        if publication:
            done |= publication.begin(plan.remaining(done))
            publication.publish(directory.parts())
        if done:
            report(SweepProgress(f"{len(done):,} runs are done already"))
        remaining = plan.remaining(done)
        total_s = max(plan.cost(remaining), 1e-9)

        def on_runs(finished: Finished) -> None:
            if publication:
                publication.publish(finished.parts)
                publication.commit(finished.files, is_last=finished.runs == len(remaining))
            report(SweepProgress(runs=finished.runs, runs_total=len(remaining), share=finished.seconds / total_s))

        tables = publication.table_files() if publication and target.is_alone else None
        spark = starting.session()
        executed = execute(plan, directory, done, spark, on_runs, tables)
        report(SweepProgress("computing measures"))
    if target.is_alone:
        directory = _fetched(target, digest)
        consolidate(directory, spark)
    else:
        consolidate(directory, spark, executed.parts, digest)
    return directory


def _fetched(target: Target, plan: str) -> SweepDirectory:
    from endive.pipeline.opening import fetched  # noqa: PLC0415 - PyIceberg takes a second to load

    return fetched(str(target.catalog), target.name, target.directory.endpoint, plan)


def _starting(plan: Plan, where: Where, report: Report) -> "StartingSession":
    """Return a session that starts in the background, or the one that is running."""
    from endive.spark.java import find_java  # noqa: PLC0415 - PySpark takes a second to load
    from endive.spark.session import spark_session  # noqa: PLC0415
    from endive.spark.starting import StartingSession  # noqa: PLC0415
    from endive.spark.using import running_session  # noqa: PLC0415

    java = None if running_session(where.master) else find_java()
    for reason in java.skipped if java else ():
        report(SweepProgress(reason, is_warning=True))
    report(SweepProgress(f"starting Spark with {java}" if java else "using the running Spark session"))
    settings = {**(LIGHT if plan.keep == "summaries" else {}), **where.settings}
    session = spark_session(where.master, settings=settings, java=java, ship=where.ship, sources=False)
    return StartingSession(session, sources=False)


def _compile_engine(report: Report) -> None:
    """Compile the engine if it is not cached: otherwise every machine's workers would load it at once and compile."""
    from endive.sim.engines import is_cold  # noqa: PLC0415 - Numba takes a second to load
    from endive.spark.daemon import warm_engine  # noqa: PLC0415

    if is_cold():
        report(SweepProgress("compiling the engine: about half a minute, once on this machine"))
        warm_engine()
