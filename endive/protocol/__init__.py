"""Protocols: generators that ask and are answered by a driver.

No I/O, no clock, no randomness: the driver of a protocol decides what a request costs, in which order things happen
and what fails. The same code runs against a bucket, in virtual time, and under a search that tries every order.

* `requests`: what can be asked, `ask`, and creating an object when the answer may get lost.
* `sequenced`: numbered objects, each created exactly once; the boundary below which ids are spent.
* `fencing`: a log of numbered entries with one writer at a time.
* `two_phase`: create-if-absent for stores that have none, with the help of a transactional store.
"""
