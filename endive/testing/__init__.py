"""Drivers and stores for tests of protocols: ours, and those of users.

* `explorer`: every interleaving of several protocols, with crashes, lost replies and refusals.
* `virtual_time`: many processes in virtual time, with latencies and injected faults from a seed.
* `fault_injection`: an object store that delays, throttles, loses replies and stalls, from a seed.
"""

from endive.testing.fault_injection import FaultInjectingStore, FaultProbabilities

__all__ = ["FaultInjectingStore", "FaultProbabilities"]
