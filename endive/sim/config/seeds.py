"""Seeds as people write them."""

import re

from endive.sim.config.schema import SEED_MAX

SEEDS_MAX = 10_000


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of a range such as `1..5`, the last included. `ValueError` says what was expected."""
    match = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", text)
    if match is None:
        raise ValueError(f"{text!r}: expected A..B, such as 1..5")
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + SEEDS_MAX or last > SEED_MAX:
        raise ValueError(f"{text!r}: expected A at most B, and at most {SEEDS_MAX:,} seeds")
    return list(range(first, last + 1))
