"""Seeds as users give them: one, several, or a range such as `1..5`."""

import re
from collections.abc import Iterable

from endive.errors import ConfigurationError
from endive.sim.config.schema import SEED_MAX

SEEDS_MAX = 10_000
Seeds = int | str | Iterable[int] | None
"""One seed, a range such as `1..5`, several seeds, or None: the configuration's."""


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of a range such as `1..5`, the last included. `ValueError` says what was expected."""
    match = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", text)
    if match is None:
        raise ValueError(f"{text!r}: expected A..B, such as 1..5")
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + SEEDS_MAX or last > SEED_MAX:
        raise ValueError(f"{text!r}: expected A at most B, and at most {SEEDS_MAX:,} seeds")
    return list(range(first, last + 1))


def seeds_of(seeds: Seeds, default: int, option: str = "seeds") -> list[int]:
    """Return the seeds in the order given, each once. `ConfigurationError` names the option."""
    try:
        if isinstance(seeds, str):
            return parse_seeds(seeds)
        chosen = [default] if seeds is None else [seeds] if isinstance(seeds, int) else list(dict.fromkeys(seeds))
        if not chosen or not all(isinstance(seed, int) and 0 <= seed <= SEED_MAX for seed in chosen):
            raise ValueError(f"{seeds!r}: expected seeds from 0 to {SEED_MAX}")
    except ValueError as error:
        raise ConfigurationError(option, [f"{error}; for one seed write 3..3"]) from error
    return chosen
