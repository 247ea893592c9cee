"""One retry of an operation with an unknown outcome.

The transaction functions recognise the effect of an earlier try: by the creation id of a namespace, by a table's uuid.
"""

from collections.abc import Callable
from typing import TypeVar

from endive.errors import NotInCatalogError, OutcomeUnknownError

T = TypeVar("T")


def retrying(first: Callable[[], T], again: Callable[[], T] | None = None) -> T:
    """Run an operation; if its outcome is unknown, run `again`, or the same once more."""
    try:
        return first()
    except OutcomeUnknownError:
        return (again or first)()


def dropping(drop: Callable[[], object]) -> None:
    """Run a drop; if its outcome is unknown and a second try finds nothing to drop, it has happened."""
    try:
        drop()
    except OutcomeUnknownError:
        try:
            drop()
        except NotInCatalogError:
            return
