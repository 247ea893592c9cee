"""Errors carry facts, and survive travel."""

import pickle
from dataclasses import fields

import pytest

from endive import errors
from endive.errors import ConfigurationError, EndiveError, FencedError


def kinds(root: type[EndiveError] = EndiveError) -> list[type[EndiveError]]:
    return [kind for child in root.__subclasses__() for kind in (child, *kinds(child))]


OURS = [kind for kind in kinds() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_and_being_rebuilt_from_its_args(kind: type[EndiveError]) -> None:
    facts: dict[str, object] = {
        field.name: (7 if "int" in str(field.type) else f"<{field.name}>") for field in fields(kind) if field.init
    }
    facts |= {field.name: b"<bytes>" for field in fields(kind) if field.type is bytes}
    facts |= {name: ("one", "two") for name in ("errors", "log") if name in facts}
    raised = kind(**facts)

    for rebuilt in (pickle.loads(pickle.dumps(raised)), type(raised)(*raised.args)):  # noqa: S301 - our own bytes
        assert type(rebuilt) is kind
        assert str(rebuilt) == str(raised)
        assert {name: getattr(rebuilt, name) for name in facts} == facts
    assert not (kind.__doc__ or "").startswith(f"{kind.__name__}("), "no docstring but the one made from the fields"


def test_facts_may_be_given_by_name_or_by_place() -> None:
    assert FencedError("writer", 1, found_epoch=2).args == ("writer", 1, 2)


def test_errors_with_equal_facts_are_different_errors() -> None:
    assert ConfigurationError("a", ["b"]) != ConfigurationError("a", ["b"])
    assert len({ConfigurationError("a", ["b"]), ConfigurationError("a", ["b"])}) == 2
