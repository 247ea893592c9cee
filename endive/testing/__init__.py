"""Tools to test protocols: those of Endive, and those of users. docs/testing-protocols.md is the guide.

* `explorer`: a model checker. Runs several protocols in every order of their steps, with crashes, lost replies,
  refusals and clock jumps, and checks invariants in every state.
* `virtual_time`: a simulated cluster. Runs many processes with latencies, faults, stalls and crashes from a seed.
* `fault_injection`: an object store that delays, refuses, fails, stalls and loses replies, from a seed, for threads.

The explorer is built on `automaton` (a protocol as a state machine), `fingerprint` (when two states are equal) and
`store_state` (the object store as a value).
"""

from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration, Invariant, RecordEvent, explore
from endive.testing.fault_injection import FaultInjectingStore, FaultProbabilities
from endive.testing.store_state import Contents
from endive.testing.virtual_time import ClusterFaults, SimulatedCluster, latency_from

__all__ = [
    "Bounds",
    "ClusterFaults",
    "Contents",
    "Exploration",
    "FaultInjectingStore",
    "FaultProbabilities",
    "Invariant",
    "Program",
    "RecordEvent",
    "SimulatedCluster",
    "explore",
    "latency_from",
]
