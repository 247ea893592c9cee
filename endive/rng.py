"""Named random streams from one seed.

A stream is SplitMix64: number `n` of a stream is a hash of its key and `n`, so a stream costs two integers, can
be made for every transaction and every purpose, and has the same numbers in any language with 64-bit integers.
Draws therefore do not depend on the order of events: a new consumer leaves all older results unchanged, and two
configurations can be compared under common random numbers.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""SplitMix64's step: the odd integer nearest to 2**64 divided by the golden ratio."""
UNIT = 2.0**-53
"""Distance between neighbouring draws."""


class RandomSource(Protocol):
    """Anything that draws uniform numbers: `Stream`, NumPy's `RandomState` and `Generator`, `random.Random`."""

    def random(self) -> float:
        """Return the next number, at least 0 and less than 1."""
        ...


def mix(z: int) -> int:
    """Return SplitMix64's hash of a 64-bit integer."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Stream:
    """Uniform numbers that depend on the stream's key and on nothing else."""

    __slots__ = ("drawn", "key")

    def __init__(self, key: int) -> None:
        self.key = key & _MASK
        self.drawn = 0

    def random(self) -> float:
        """Return the next number: a multiple of 2**-53, at least 0 and less than 1."""
        self.drawn += 1
        return (mix((self.key + self.drawn * GOLDEN) & _MASK) >> 11) * UNIT

    def child(self, number: int) -> "Stream":
        """Return stream `number` of the family that this stream's key names, such as a transaction's own."""
        return Stream(mix(self.key ^ mix((number + 1) * GOLDEN & _MASK)))

    if not TYPE_CHECKING:  # would hide misspelt names from the type checker

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """Return a method of NumPy's `RandomState`, such as `lognormal`; a call takes one number of the stream."""
            if name.startswith("_"):
                raise AttributeError(name)
            from numpy.random import RandomState  # noqa: PLC0415 - only distributions of a user's own need it

            return getattr(RandomState(int(self.random() * 2**32)), name)

    def __repr__(self) -> str:
        return f"Stream(key={self.key:#018x}, drawn={self.drawn})"


def stream(seed: int, name: str) -> Stream:
    """Return the stream called `name` of `seed`. Names are purposes: `"runtime"`, `"storage"`, `"backoff"`."""
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return Stream(int.from_bytes(digest, "little"))
