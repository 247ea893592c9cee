"""Histories of commits and loads of one table, and an exact check that they are linearizable.

Every commit adds a key of its own to the table, and every load returns the keys that it found. For such a set that
only grows, a history is linearizable if and only if

1. a load finds every key whose commit was acknowledged before the load began,
2. and none whose commit began after the load ended;
3. of any two loads one finds all keys of the other, and the later one, if they did not overlap, all of the earlier;
4. a load that finds a key finds every key whose commit was acknowledged before that key's commit began.

Given these, the loads are a chain of sets; the commits between two of them can be put into the order of their times.
A commit without an answer may have happened at any time after it began, or never. So the check takes no search, as that
of a general history does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from time import monotonic

NEVER = float("inf")


@dataclass
class Commit:
    """An attempt to add a key."""

    key: str
    began_s: float
    ended_s: float = NEVER
    """When it was acknowledged; NEVER: it was not."""


@dataclass(frozen=True)
class Load:
    """The keys that a load found."""

    keys: frozenset[str]
    began_s: float
    ended_s: float


@dataclass
class History:
    """What clients have seen. Safe to use from many threads."""

    commits: list[Commit] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def begin(self, key: str) -> Commit:
        """Note that a commit begins; its `ended_s` is set when it is acknowledged."""
        commit = Commit(key, monotonic())
        with self._lock:
            self.commits.append(commit)
        return commit

    def loaded(self, keys: Iterable[str], began_s: float) -> None:
        """Note a load that has ended."""
        load = Load(frozenset(keys), began_s, monotonic())
        with self._lock:
            self.loads.append(load)

    @property
    def acknowledged(self) -> list[Commit]:
        return [one for one in self.commits if one.ended_s < NEVER]


def violations(history: History) -> list[str]:
    """Return what no order of the operations explains; empty: the history is linearizable."""
    return [*_of_commits(history), *_of_chain(history.loads), *_of_order(history)]


def _of_commits(history: History) -> Iterator[str]:
    """Rules 1 and 2."""
    by_key = {one.key: one for one in history.commits}
    for load in history.loads:
        for key in load.keys:
            if key not in by_key:
                yield f"a load found {key}, which nobody committed"
            elif by_key[key].began_s > load.ended_s:
                yield f"a load found {key} before its commit began"
        for one in history.commits:
            if one.ended_s < load.began_s and one.key not in load.keys:
                yield f"a load did not find {one.key}, which was acknowledged {load.began_s - one.ended_s:.3f} s before"


def _of_chain(loads: Sequence[Load]) -> Iterator[str]:
    """Rule 3."""
    for small, large in pairwise(sorted(loads, key=lambda one: len(one.keys))):
        if not small.keys <= large.keys:
            lacks = min(large.keys - small.keys), min(small.keys - large.keys)
            yield f"two loads disagree: one lacks {lacks[0]}, the other {lacks[1]}"
    latest: Load | None = None  # of the loads that have ended, the one with most keys
    ended = sorted(loads, key=lambda one: one.ended_s)
    place = 0
    for load in sorted(loads, key=lambda one: one.began_s):
        while place < len(ended) and ended[place].ended_s < load.began_s:
            if latest is None or len(ended[place].keys) > len(latest.keys):
                latest = ended[place]
            place += 1
        if latest is not None and not latest.keys <= load.keys:
            yield f"a load lost {min(latest.keys - load.keys)}, which an earlier load had found"


def _of_order(history: History) -> Iterator[str]:
    """Rule 4."""
    for load in history.loads:
        found = [one for one in history.commits if one.key in load.keys]
        newest_s = max((one.began_s for one in found), default=-NEVER)
        for one in history.commits:
            if one.ended_s < newest_s and one.key not in load.keys:
                yield f"a load found a newer commit, but not {one.key}"
