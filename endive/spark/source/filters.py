"""Translates Spark's filters to PyIceberg's, so that files, row groups and rows that cannot match are not read.

Spark applies every filter again, so a pushed filter may keep too many rows but never too few. NaN needs care: Spark
orders it above every number, bounds of files and row groups ignore it, and Arrow assumes that a row group whose minimum
equals its maximum has no other value.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import reduce
from math import isnan
from typing import Any

from pyiceberg import expressions as e
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, PrimitiveType
from pyspark.sql import datasource as spark

Make = Callable[..., BooleanExpression]

MEANING: dict[type[spark.Filter], tuple[Make, Make]] = {
    spark.EqualTo: (e.EqualTo, e.NotEqualTo),
    spark.EqualNullSafe: (e.EqualTo, e.NotEqualTo),
    spark.GreaterThan: (e.GreaterThan, e.LessThanOrEqual),
    spark.GreaterThanOrEqual: (e.GreaterThanOrEqual, e.LessThan),
    spark.LessThan: (e.LessThan, e.GreaterThanOrEqual),
    spark.LessThanOrEqual: (e.LessThanOrEqual, e.GreaterThan),
    spark.In: (e.In, e.NotIn),
    spark.IsNull: (e.IsNull, e.NotNull),
    spark.IsNotNull: (e.NotNull, e.IsNull),
    spark.StringStartsWith: (e.StartsWith, e.NotStartsWith),
}
"""PyIceberg's expression for each filter, and for its negation."""

FLOATING: tuple[Make, ...] = (e.EqualTo, e.In, e.LessThan, e.LessThanOrEqual, e.IsNull, e.NotNull)
"""Filters that can be pushed for columns that may have NaN: no NaN matches them, or they ignore the value."""

IS_NULL: Make = e.IsNull


def pushed(filters: Sequence[spark.Filter], schema: Schema) -> BooleanExpression:
    """Return the part of `filters`, all of which must hold, that a table with this schema can apply."""
    expressions = [one for one in (_expression(each, schema) for each in filters) if one is not None]
    everything: BooleanExpression = e.AlwaysTrue()
    return reduce(e.And, expressions, everything)


def _expression(one: spark.Filter, schema: Schema) -> BooleanExpression | None:
    """Return a filter as PyIceberg's expression; None if it has none."""
    negated = isinstance(one, spark.Not)
    inner = one.child if isinstance(one, spark.Not) else one
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or type(inner) not in MEANING:  # within a struct, Arrow and Spark disagree on nulls
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
    if isinstance(one, spark.EqualNullSafe) and one.value is None:
        one = spark.IsNull(one.attribute)
    make = MEANING[type(one)][negated]
    if floating and make not in FLOATING:
        return None
    if isinstance(one, spark.IsNull | spark.IsNotNull):
        return make(name)
    value = getattr(one, "value", None)
    several = isinstance(one, spark.In)
    if any(each is None or _is_nan(each) for each in (value if several and value else [value])):
        return None
    expression = make(name, [_literal(each) for each in value or ()] if several else _literal(value))
    return e.Or(expression, IS_NULL(name)) if isinstance(one, spark.EqualNullSafe) and negated else expression


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _literal(value: object) -> Any:  # noqa: ANN401 - PyIceberg's own type of literals is a type variable
    """Return times as text, which PyIceberg reads according to the column: with a zone or without."""
    return value.isoformat() if isinstance(value, date | datetime) else value
