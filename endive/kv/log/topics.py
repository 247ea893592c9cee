"""Intentions that need files: carried out by a writer that has prepared them.

A call is carried out by any writer, because it is computed from rows alone. Some transactions need more: an append to
an Iceberg table has a manifest list, and its commit may have a metadata file, both of which must exist before a row
names them. Such an intention has a *topic*, say a table, and writers leave it alone unless they know how to prepare
intentions on that topic. One that does reads all pending ones, prepares them together from the state that it knows,
and runs one transaction function, `carry_out_prepared`, that puts the rows and the result of every one of them.

**Guarantees** are those of `endive.kv.log.helping`: an intention takes effect at most once, and its owner gets
the result in the entry. The proof is the same: effects and results are put by one function, in a state without
results and with a horizon that does not exclude them. The prepared rows may be out of date by then. The function that
puts the rows compares the state with the one that it was prepared from, and puts nothing if they differ.

**Prepared by several.** Two writers that prepare the same intentions both write files; only one of them gets its entry
into the log first, and the other finds the results. No row refers to its files, and it deletes them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from endive.kv.log.helping import is_open, record_results
from endive.kv.log.intentions import CallResult, Decided
from endive.kv.transaction import Transaction
from endive.protocol.requests import Steps

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict(Generic[T]):
    """What a function that was prepared has done."""

    value: T
    results: Mapping[str, tuple[CallResult, ...]] = field(default_factory=dict)
    """Results of the intentions that are decided, by name. Without any, the function must not have put rows."""


@dataclass(frozen=True)
class AlreadyDecided:
    """Nothing was put: some of the intentions were decided before, or have expired."""

    names: tuple[str, ...]


PreparedFunction = Callable[[Transaction], Steps[Verdict[T]]]


@dataclass(frozen=True)
class CarryOutPrepared(Generic[T]):
    """Runs a function that carries out intentions, and puts their results; nothing, if one of them is not open.

    A transaction function. It is not announced in turn: its intentions are pending, so the next writer takes them.
    """

    names: tuple[str, ...]
    by: str
    function: PreparedFunction[T]

    def __call__(self, tx: Transaction) -> Steps[T | AlreadyDecided]:
        """Look for results first."""
        outcome = yield from carry_out_prepared(self.names, self.by, self.function, tx)
        return outcome


def carry_out_prepared(
    names: Sequence[str], by: str, function: PreparedFunction[T], tx: Transaction
) -> Steps[T | AlreadyDecided]:
    """Run a function that carries out intentions, and put their results; nothing, if one of them is not open."""
    decided: tuple[str, ...] = ()
    for number in range(len(names)):
        may_act = yield from is_open(names[number], tx)
        if not may_act:
            decided = (*decided, names[number])
    if decided:
        return AlreadyDecided(decided)
    verdict = yield from function(tx)
    for name, results in verdict.results.items():
        record_results(name, Decided(by, results), tx)
    return verdict.value
