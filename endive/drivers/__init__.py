"""Drivers: what answers a protocol.

* `blocking`: an object store, from threads. `asynchronous`: the same, from asyncio.
* `simulated`: virtual time, with latencies, faults, stalls and crashes from a seed.
* `interleaved`: every order of steps, with lost replies, crashes and jumps of the clock.
"""
