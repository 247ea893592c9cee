"""The plan of a sweep: its runs, their estimated cost, and the bins that Spark tasks take.

A run is identified by its experiment and its seed. An experiment's name is a digest of everything that its metrics
depend on: a changed configuration has another name, so an old result is never taken for a new one. Groups may share
experiments; each is run once.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from endive.errors import ConfigurationError
from endive.pipeline.cost import run_seconds
from endive.pipeline.sweep_file import Experiment, ExperimentGroup, Keep
from endive.sim.config.configuration import Settings, experiment_digest

Run = tuple[str, int]
"""An experiment's name and a seed."""

DIGITS = 16
"""Length of an experiment's name. Among a million experiments, two share a name once in ten million sweeps."""

BIN_SECONDS = (0.25, 5.0)
"""Bounds of a bin's cost: a Spark task costs milliseconds itself, and a killed task loses its whole bin."""

BINS_PER_CORE = 40
"""Enough bins for each core to keep all cores busy to the end."""


def experiment_name(settings: Settings) -> str:
    """Return the digest of everything that an experiment's metrics depend on, the window included."""
    window = settings.window
    text = f"{experiment_digest(settings)}/{window.start_ms!r}/{window.end_ms!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Bin:
    """Runs that one Spark task does, one after another."""

    runs: tuple[Run, ...]
    seconds: float
    """Estimated cost."""


@dataclass(frozen=True)
class Plan:
    """All groups of a sweep, and the runs they ask for."""

    groups: tuple[ExperimentGroup, ...]

    def __post_init__(self) -> None:
        errors = [*_clashing_names(self.groups), *_clashing_keeps(self.groups), *_equal_experiments(self)]
        if errors:
            raise ConfigurationError("sweep", errors)

    @property
    def keep(self) -> Keep:
        """The files that runs leave: metrics only, or transactions as well."""
        return self.groups[0].keep

    @property
    def experiments(self) -> list[tuple[ExperimentGroup, Experiment]]:
        """Every experiment of every group, with its group."""
        return [(group, experiment) for group in self.groups for experiment in group.experiments]

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The experiments' names, by the identity of the object."""
        return {id(experiment): experiment_name(experiment.settings) for _, experiment in self.experiments}

    def name_of(self, experiment: Experiment) -> str:
        """Return the experiment's name."""
        return self.names[id(experiment)]

    @cached_property
    def settings(self) -> Mapping[str, Settings]:
        """The distinct configurations, by experiment name."""
        return {self.name_of(one): one.settings for group in reversed(self.groups) for one in group.experiments}

    @cached_property
    def seconds(self) -> Mapping[str, float]:
        """Estimated cost of one run of each experiment, in seconds of one core."""
        return {name: run_seconds(settings) for name, settings in self.settings.items()}

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every run, once."""
        runs = ((self.name_of(experiment), seed) for group, experiment in self.experiments for seed in group.seeds)
        return tuple(dict.fromkeys(runs))

    @property
    def requested(self) -> int:
        """Number of runs as the groups count them: a run that two groups share counts twice."""
        return sum(len(group.experiments) * len(group.seeds) for group in self.groups)

    def remaining(self, done: Collection[Run]) -> tuple[Run, ...]:
        """Return the runs that are not done yet."""
        return tuple(run for run in self.runs if run not in done)

    def cost(self, runs: Iterable[Run]) -> float:
        """Return the estimated cost of these runs, in seconds of one core."""
        return sum(self.seconds[experiment] for experiment, _ in runs)

    def bins(self, runs: Sequence[Run], cores: int, factor: float = 1.0) -> list[Bin]:
        """Cut runs into bins of about equal cost, the heaviest runs first.

        Spark starts tasks in the order of the bins: small runs at the end even out the load of the cores. `factor` is
        the measured cost of other runs by their estimated cost.
        """
        low, high = (bound / factor for bound in BIN_SECONDS)
        target = min(max(self.cost(runs) / (max(cores, 1) * BINS_PER_CORE), low), high)
        bins: list[Bin] = []
        collected: list[Run] = []
        collected_s = 0.0
        for run in sorted(runs, key=lambda run: (-self.seconds[run[0]], run)):
            collected.append(run)
            collected_s += self.seconds[run[0]]
            if collected_s >= target:
                bins.append(Bin(tuple(collected), collected_s))
                collected, collected_s = [], 0.0
        return [*bins, Bin(tuple(collected), collected_s)] if collected else bins


def _clashing_names(groups: Sequence[ExperimentGroup]) -> list[str]:
    names = [group.name for group in groups]
    return [f"two files are called {name!r}; rename one" for name in dict.fromkeys(names) if names.count(name) > 1]


def _clashing_keeps(groups: Sequence[ExperimentGroup]) -> list[str]:
    keeps = {group.name: group.keep for group in groups}
    if len(set(keeps.values())) < 2:
        return []
    found = ", ".join(f"{name} keeps {keep}" for name, keep in keeps.items())
    return [f"files of one sweep must have the same `keep`, but {found}"]


def _equal_experiments(plan: Plan) -> list[str]:
    errors: list[str] = []
    for group in plan.groups:
        seen: dict[str, Experiment] = {}
        for experiment in group.experiments:
            twin = seen.setdefault(plan.name_of(experiment), experiment)
            if twin is not experiment:
                pair = f"{dict(twin.parameters)} and {dict(experiment.parameters)}"
                errors.append(f"{group.source}: {pair} are the same experiment")
    return errors
