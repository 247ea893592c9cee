"""Spark's filters as PyIceberg's, so that files, row groups and rows that cannot match are not read.

Every filter goes back to Spark too, which applies it again: what is pushed need only keep every row that Spark would
keep. That is where the two differ: to Spark, NaN is larger than every number and equal to itself; to Iceberg's bounds
and to Arrow it is neither.
"""

from collections.abc import Sequence
from datetime import date, datetime
from functools import reduce
from math import isnan
from typing import Any

from pyiceberg import expressions
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, PrimitiveType
from pyspark.sql import datasource as spark

e: Any = expressions
"""By position, as PyIceberg means its constructors; mypy takes them for those of pydantic's models."""

INVERSE: dict[type[spark.Filter], type[spark.Filter]] = {
    spark.GreaterThan: spark.LessThanOrEqual,
    spark.GreaterThanOrEqual: spark.LessThan,
    spark.LessThan: spark.GreaterThanOrEqual,
    spark.LessThanOrEqual: spark.GreaterThan,
}


def pushed(filters: Sequence[spark.Filter], schema: Schema) -> BooleanExpression:
    """Return the part of `filters`, all of which must hold, that a table with this schema can apply."""
    expressions = [one for one in (_expression(each, schema) for each in filters) if one is not None]
    return reduce(e.And, expressions, e.AlwaysTrue())


def _expression(one: spark.Filter, schema: Schema) -> BooleanExpression | None:
    """Return a filter as PyIceberg's; None where there is no such thing."""
    negated = isinstance(one, spark.Not)
    inner = one.child if isinstance(one, spark.Not) else one
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1:  # within a struct: Arrow and Spark disagree on nulls there
        return None
    field = next((field for field in schema.fields if field.name == path[0]), None)
    if field is None or not isinstance(field.field_type, PrimitiveType):
        return None
    expression = _of_column(inner, negated, field.name, isinstance(field.field_type, FloatType | DoubleType))
    try:
        if expression is not None:
            bind(schema, expression, case_sensitive=True)
    except (ValueError, TypeError):  # a literal that the column's type cannot have
        return None
    return expression


def _of_column(one: spark.Filter, negated: bool, name: str, floating: bool) -> BooleanExpression | None:
    if negated and type(one) in INVERSE:
        return _comparison(INVERSE[type(one)]((name,), one.value), False, name, floating)  # type: ignore[call-arg,attr-defined]
    match one:
        case spark.IsNull() | spark.EqualNullSafe(value=None):
            return e.NotNull(name) if negated else e.IsNull(name)
        case spark.IsNotNull():
            return e.IsNull(name) if negated else e.NotNull(name)
        case spark.In():
            return _in(one, negated, name)
        case spark.StringStartsWith():
            return e.NotStartsWith(name, one.value) if negated else e.StartsWith(name, one.value)
    return _comparison(one, negated, name, floating)


def _comparison(one: spark.Filter, negated: bool, name: str, floating: bool) -> BooleanExpression | None:
    value = _literal(getattr(one, "value", None))
    if value is None or _is_nan(value):
        return None
    equal, other = e.EqualTo(name, value), e.NotEqualTo(name, value)
    more: BooleanExpression | None = None
    match one:
        case spark.EqualTo():
            return other if negated else equal
        case spark.EqualNullSafe():
            return e.Or(other, e.IsNull(name)) if negated else equal
        case spark.LessThan():
            return e.LessThan(name, value)
        case spark.LessThanOrEqual():
            return e.LessThanOrEqual(name, value)
        case spark.GreaterThan():
            more = e.GreaterThan(name, value)
        case spark.GreaterThanOrEqual():
            more = e.GreaterThanOrEqual(name, value)
    return e.Or(more, e.IsNaN(name)) if more is not None and floating else more


def _in(one: spark.In, negated: bool, name: str) -> BooleanExpression | None:
    if any(value is None or _is_nan(value) for value in one.value):
        return None
    values = [_literal(value) for value in one.value]
    return e.NotIn(name, values) if negated else e.In(name, values)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _literal(value: object) -> Any:  # noqa: ANN401 - PyIceberg's own type of literals is a type variable
    """Return times as text, which PyIceberg reads according to the column: with a zone or without."""
    return value.isoformat() if isinstance(value, date | datetime) else value
