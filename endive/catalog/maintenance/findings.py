"""A finding of a check."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """An inconsistency, and its place: a row's key, a table, a file."""

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"
