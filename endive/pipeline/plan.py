"""The plan of a sweep: which runs, what each will cost, in which bins, and which are done already.

A run is named by its experiment and its seed. An experiment's name is a digest of everything that its figures depend
on, so that a changed configuration has another name and is never taken for a done one. Families may share experiments:
each is run once.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from endive.errors import ConfigurationError
from endive.pipeline.cost import run_seconds
from endive.pipeline.sweep import Family, Keep, Member
from endive.sim.config.configuration import Settings, experiment_digest

Run = tuple[str, int]
"""An experiment's name and a seed."""

DIGITS = 16
"""Of an experiment's name: a million experiments have two with one name once in ten million sweeps."""

BIN_SECONDS = (0.25, 5.0)
"""A bin should cost at least so much, since a Spark task costs milliseconds, and at most so much, since it is what a
killed task loses."""

BINS_PER_CORE = 40
"""So many bins for each core keep all cores busy to the end."""


def experiment_name(settings: Settings) -> str:
    """Return the name of everything that an experiment's figures depend on, the window included."""
    window = settings.window
    text = f"{experiment_digest(settings)}/{window.start_ms!r}/{window.end_ms!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Bin:
    """Runs that one Spark task does, one after another."""

    runs: tuple[Run, ...]
    seconds: float
    """What they will cost, about."""


@dataclass(frozen=True)
class Plan:
    """Everything that a sweep will do."""

    families: tuple[Family, ...]

    def __post_init__(self) -> None:
        faults = [*_clashing_names(self.families), *_clashing_keeps(self.families), *_equal_members(self)]
        if faults:
            raise ConfigurationError("sweep", faults)

    @property
    def keep(self) -> Keep:
        """What the runs leave behind."""
        return self.families[0].keep

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The experiments' names, by the identity of the member."""
        return {id(member): experiment_name(member.settings) for family in self.families for member in family.members}

    def name_of(self, member: Member) -> str:
        """Return the experiment's name."""
        return self.names[id(member)]

    @cached_property
    def experiments(self) -> Mapping[str, Settings]:
        """The distinct experiments, by name."""
        return {
            self.name_of(member): member.settings for family in reversed(self.families) for member in family.members
        }

    @cached_property
    def seconds(self) -> Mapping[str, float]:
        """What one run of each experiment will cost, about."""
        return {name: run_seconds(settings) for name, settings in self.experiments.items()}

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every run, once."""
        members = ((family, member) for family in self.families for member in family.members)
        runs = ((self.name_of(member), seed) for family, member in members for seed in family.seeds)
        return tuple(dict.fromkeys(runs))

    @property
    def asked(self) -> int:
        """Runs as the families count them: those that two families share are counted twice."""
        return sum(len(family.members) * len(family.seeds) for family in self.families)

    def remaining(self, done: Collection[Run]) -> tuple[Run, ...]:
        """Return the runs that are not done yet."""
        return tuple(run for run in self.runs if run not in done)

    def cost(self, runs: Iterable[Run]) -> float:
        """Return the seconds that these runs will cost on one core, about."""
        return sum(self.seconds[experiment] for experiment, _ in runs)

    def bins(self, runs: Sequence[Run], cores: int) -> list[Bin]:
        """Cut runs into bins of about equal cost, the heaviest first.

        Spark starts tasks in the order of the bins. The small ones at the end even out what the large ones left uneven.
        """
        low, high = BIN_SECONDS
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


def _clashing_names(families: Sequence[Family]) -> list[str]:
    names = [family.name for family in families]
    return [f"two files are called {name!r}; rename one" for name in dict.fromkeys(names) if names.count(name) > 1]


def _clashing_keeps(families: Sequence[Family]) -> list[str]:
    keeps = {family.name: family.keep for family in families}
    if len(set(keeps.values())) < 2:
        return []
    found = ", ".join(f"{name} keeps {keep}" for name, keep in keeps.items())
    return [f"files that are swept together must keep the same, but {found}"]


def _equal_members(plan: Plan) -> list[str]:
    faults: list[str] = []
    for family in plan.families:
        seen: dict[str, Member] = {}
        for member in family.members:
            twin = seen.setdefault(plan.name_of(member), member)
            if twin is not member:
                faults.append(
                    f"{family.source}: {dict(twin.parameters)} and {dict(member.parameters)} are one experiment"
                )
    return faults
