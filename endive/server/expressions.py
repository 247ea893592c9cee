"""Filters as JSON: Iceberg's expressions from a request, and residuals in an answer.

Literals stay as the client has sent them and get their type when they are bound to a column, but for columns of type
`binary` and `fixed`, whose literals are hexadecimal.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType

from endive.server.errors import bad_request, not_acceptable

DEPTH_MAX = 100
"""Levels of a filter; the evaluators recurse."""

UNARY: Mapping[str, Callable[..., BooleanExpression]] = {
    "is-null": IsNull,
    "not-null": NotNull,
    "is-nan": IsNaN,
    "not-nan": NotNaN,
}
LITERAL: Mapping[str, Callable[..., BooleanExpression]] = {
    "lt": LessThan,
    "lt-eq": LessThanOrEqual,
    "gt": GreaterThan,
    "gt-eq": GreaterThanOrEqual,
    "eq": EqualTo,
    "not-eq": NotEqualTo,
    "starts-with": StartsWith,
    "not-starts-with": NotStartsWith,
}
SETS: Mapping[str, Callable[..., BooleanExpression]] = {"in": In, "not-in": NotIn}
PAIRS: Mapping[str, Callable[..., BooleanExpression]] = {"and": And, "or": Or}
_NAMES: dict[Any, str] = {kind: name for table in (UNARY, LITERAL, SETS, PAIRS) for name, kind in table.items()}


def expression_of(value: Any, schema: Schema, case_sensitive: bool) -> BooleanExpression:  # noqa: ANN401 - JSON
    """Return the filter of a request; 400 if it is malformed or does not fit the schema."""
    if value is None:
        return AlwaysTrue()
    try:
        found = _Parser(schema, case_sensitive).parse(value, 0)
        bind(schema, found, case_sensitive)
    except (ValueError, TypeError, KeyError, NotImplementedError, ArithmeticError) as error:
        raise bad_request(f"Cannot use the filter: {error}") from error
    return found


class _Parser:
    def __init__(self, schema: Schema, case_sensitive: bool) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive

    def parse(self, value: Any, depth: int) -> BooleanExpression:  # noqa: ANN401 - JSON
        if depth > DEPTH_MAX:
            raise ValueError(f"it has more than {DEPTH_MAX} levels")
        if isinstance(value, bool):
            return AlwaysTrue() if value else AlwaysFalse()
        if not isinstance(value, dict):
            raise TypeError(f"not an expression: {value!r}")
        kind = str(value.get("type"))
        if kind in ("true", "false"):
            return AlwaysTrue() if kind == "true" else AlwaysFalse()
        if kind in PAIRS:
            return PAIRS[kind](self.parse(value["left"], depth + 1), self.parse(value["right"], depth + 1))
        if kind == "not":
            return Not(self.parse(value["child"], depth + 1))
        return self._predicate(kind, value)

    def _predicate(self, kind: str, value: dict[str, Any]) -> BooleanExpression:
        term = Reference(_column(value["term"]))
        if kind in UNARY:
            return UNARY[kind](term)
        if kind in LITERAL:
            return LITERAL[kind](term, self._literal(term, value["value"]))
        if kind in SETS:
            values = value["values"]
            if not isinstance(values, list):
                raise TypeError(f"`values` of {kind!r} is not a list")
            return SETS[kind](term, [self._literal(term, one) for one in values])
        raise ValueError(f"unknown expression {kind!r}")

    def _literal(self, term: Reference, value: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, dict) and value.get("type") == "literal":
            value = value["value"]
        if not isinstance(value, bool | int | float | str):
            raise TypeError(f"not a literal: {value!r}")
        column = self._schema.find_field(term.name, self._case_sensitive).field_type
        return bytes.fromhex(str(value)) if isinstance(column, BinaryType | FixedType) else value


def _column(term: Any) -> str:  # noqa: ANN401 - JSON
    """Return the column of a term."""
    if isinstance(term, dict):
        if term.get("type") == "transform":
            raise not_acceptable("transforms in a filter")
        term = term.get("term")
    if not isinstance(term, str) or not term:
        raise TypeError(f"not a column: {term!r}")
    return term


def expression_json(expression: BooleanExpression) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of a filter without bound parts."""
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return isinstance(expression, AlwaysTrue)
    if isinstance(expression, Not):
        return {"type": "not", "child": expression_json(expression.child)}
    found: dict[str, Any] = {"type": _NAMES[type(expression)]}
    if isinstance(expression, And | Or):
        return found | {"left": expression_json(expression.left), "right": expression_json(expression.right)}
    found["term"] = expression.term.name  # type: ignore[attr-defined]
    if isinstance(expression, In | NotIn):
        return found | {"values": sorted(_plain(one.value) for one in expression.literals)}
    if type(expression) in LITERAL.values():
        return found | {"value": _plain(expression.literal.value)}  # type: ignore[attr-defined]
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401 - a literal of a filter
    return value.hex() if isinstance(value, bytes) else value
