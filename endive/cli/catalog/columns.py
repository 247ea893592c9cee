"""Columns and partitions of the command line: `id long required, ts timestamptz, tags list<string>`.

A column is a name, a type of Iceberg's, and perhaps `required`. Nested types are `list<…>`, `map<…, …>` and
`struct<a int, b string required>`; elements and values may be `required` too. A name with blanks goes in double quotes.
A partition is a column, or a transform of one: `day(ts), bucket(16, id), truncate(4, name) as short`.

Every column and partition is read by itself, so that all errors are found at once.
"""

import re
from collections.abc import Callable, Iterator, Set
from itertools import count
from typing import TypeVar

from pydantic import ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, UnknownTransform, parse_transform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from endive.catalog.iceberg import partition_name
from endive.errors import ConfigurationError
from endive.wording import nearest, suggestion

T = TypeVar("T")

OPEN, CLOSE = "<([", ">)]"
COLUMN = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<plain>[^\s:,"<>()]+))\s*[\s:]\s*(?P<rest>\S.*)', re.DOTALL)
REQUIRED = re.compile(r"(?P<type>.*?\S)\s+(?P<word>required|optional|not\s+null|null)\s*", re.DOTALL | re.IGNORECASE)
PARTITION = re.compile(r"\s*(?P<what>.*?)(?:\s+as\s+(?P<name>\S+))?\s*", re.DOTALL | re.IGNORECASE)
CALL = re.compile(r"(?P<transform>\w+)\s*\((?P<arguments>.*)\)", re.DOTALL)

TYPES = (
    *("boolean", "int", "long", "float", "double", "decimal(P, S)", "date", "time", "timestamp", "timestamptz"),
    *("timestamp_ns", "timestamptz_ns", "string", "uuid", "fixed[N]", "binary"),
    *("list<TYPE>", "map<KEY, VALUE>", "struct<NAME TYPE, …>"),
)
OTHERS = {
    **dict.fromkeys(("bigint", "int64", "integer64"), "long"),
    **dict.fromkeys(("integer", "int32", "smallint", "tinyint", "short"), "int"),
    **dict.fromkeys(("text", "varchar", "char", "str", "utf8"), "string"),
    "bool": "boolean",
    "real": "float",
    "float64": "double",
    "datetime": "timestamp",
    "bytes": "binary",
    "blob": "binary",
    "array": "list<TYPE>",
    "numeric": "decimal(P, S)",
}
"""Names of types in other systems."""
TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket", "truncate")
PARAMETRIC = {"bucket", "truncate"}


class _ParseError(Exception):
    """One column or partition cannot be read."""


def parse_schema(text: str, source: str = "--schema") -> Schema:
    """Return the schema that a text describes, or say everything that is wrong with it."""
    schema, problems = _readable_schema(text)
    if problems:
        raise ConfigurationError(source, problems)
    return schema


def _readable_schema(text: str) -> tuple[Schema, list[str]]:
    """Return the columns that can be read, and the errors in the rest."""
    ids = count(1)
    fields, problems = _each(_split(text), lambda part: _column(part, ids))
    problems += _repeated([field.name for field in fields])
    return Schema(*{field.name: field for field in fields}.values()), problems


def check_partitions(partitions: str, schema: str) -> None:
    """Say everything that is wrong with the partitions of a table whose schema is given as text, and may be wrong.

    Errors in the schema are left to `parse_schema`. A partition by a column that cannot be read is not checked.
    """
    readable, _ = _readable_schema(schema)
    named = [match["quoted"] or match["plain"] for part in _split(schema) if (match := COLUMN.fullmatch(part))]
    parse_partitions(partitions, readable, unread=set(named) - set(readable.column_names))


def parse_column(text: str, source: str) -> NestedField:
    """Return one column; its id means nothing yet."""
    fields = parse_schema(text, source).fields
    if len(fields) != 1:
        raise ConfigurationError(source, [f"one column at a time, not {len(fields)}; the option may be repeated"])
    return fields[0]


def parse_type(text: str, source: str) -> IcebergType:
    """Return one type."""
    try:
        return _type(text.strip(), count(1))
    except _ParseError as problem:
        raise ConfigurationError(source, [str(problem)]) from problem


def parse_partitions(
    text: str, schema: Schema, source: str = "--partition", unread: Set[str] = frozenset()
) -> PartitionSpec:
    """Return the partition spec that a text describes, or say everything that is wrong with it.

    Partitions of columns in `unread` are passed over.
    """
    found, problems = _each(_split(text), lambda part: _partition(part, schema, unread))
    fields = [field for field in found if field is not None]
    problems += _repeated([field.name for field in fields])
    columns = set(schema.column_names)
    problems += [
        f"{field.name!r} is the name of a column; name it otherwise: … as NAME"
        for field in fields
        if field.name in columns and not isinstance(field.transform, IdentityTransform)
    ]
    if problems:
        raise ConfigurationError(source, problems)
    return PartitionSpec(*(field.model_copy(update={"field_id": 1000 + place}) for place, field in enumerate(fields)))


def _each(parts: list[str], read: Callable[[str], T]) -> tuple[list[T], list[str]]:
    """Return the parts that can be read, and the errors in the rest."""
    good: list[T] = []
    problems: list[str] = []
    for part in parts:
        try:
            good.append(read(part))
        except _ParseError as problem:
            problems.append(str(problem))
    return good, problems


def _split(text: str) -> list[str]:
    """Return the parts between commas; those inside brackets do not count."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in OPEN) - (letter in CLOSE)
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _repeated(names: list[str]) -> list[str]:
    return [f"{name!r} is there {names.count(name)} times" for name in dict.fromkeys(names) if names.count(name) > 1]


# Columns.


def _column(text: str, ids: Iterator[int]) -> NestedField:
    match = COLUMN.fullmatch(text)
    if match is None:
        raise _ParseError(f"{text.strip()!r} is not a column: write a name and a type, such as `id long required`")
    name = match["quoted"] or match["plain"]
    kind, required = _requirement(match["rest"])
    field_id = next(ids)
    try:
        return NestedField(field_id, name, _type(kind, ids), required=required)
    except _ParseError as problem:
        raise _ParseError(f"{name}: {problem}") from problem


def _requirement(text: str) -> tuple[str, bool]:
    """Return the type, and whether the column is required."""
    match = REQUIRED.fullmatch(text)
    if match is None:
        return text.strip(), False
    return match["type"], match["word"].lower() not in {"optional", "null"}


def _type(text: str, ids: Iterator[int]) -> IcebergType:
    outer, bracket, inner = text.partition("<")
    if not bracket:
        return _primitive(text)
    if not inner.endswith(">"):
        raise _ParseError(f"{text!r} has an opening `<` without its `>`")
    inner = inner[:-1]
    kind = outer.strip().lower()
    if kind == "struct":
        return _struct(inner, ids)
    if kind == "list":
        return _list(inner, ids)
    if kind == "map":
        return _map(inner, ids)
    raise _ParseError(f"{outer.strip()!r} is not a nested type; those are list, map and struct")


def _struct(inner: str, ids: Iterator[int]) -> StructType:
    fields, problems = _each(_split(inner), lambda part: _column(part, ids))
    problems += _repeated([field.name for field in fields])
    if problems:
        raise _ParseError("; ".join(problems))
    return StructType(*fields)


def _list(inner: str, ids: Iterator[int]) -> ListType:
    kind, required = _requirement(inner)
    element_id = next(ids)
    return ListType(element_id=element_id, element_type=_type(kind, ids), element_required=required)


def _map(inner: str, ids: Iterator[int]) -> MapType:
    parts = _split(inner)
    if len(parts) != 2:
        raise _ParseError(f"a map has a key and a value, as in map<string, long>, not {inner!r}")
    key_id, value_id = next(ids), next(ids)
    kind, required = _requirement(parts[1])
    return MapType(
        key_id=key_id,
        key_type=_type(parts[0].strip(), ids),
        value_id=value_id,
        value_type=_type(kind, ids),
        value_required=required,
    )


def _primitive(text: str) -> IcebergType:
    wanted = re.sub(r"\s+", "", text.lower())
    try:
        parsed: IcebergType = IcebergType.model_validate(wanted)
    except IcebergValidationError as error:
        raise _ParseError(str(error)) from error
    except ValidationError as error:
        raise _ParseError(_unknown_type(text)) from error
    if not wanted.startswith("geo") and str(parsed).replace(" ", "") != wanted:
        raise _ParseError(_unknown_type(text))  # PyIceberg looks at the beginning only
    return parsed


def _unknown_type(text: str) -> str:
    outer = re.split(r"[\[(<\s]", text.strip().lower())[0]
    if outer in OTHERS:
        return f"no type {text!r}; Iceberg calls it {OTHERS[outer]}"
    whole = {re.split(r"[\[(<]", known)[0]: known for known in TYPES}
    meant = nearest(outer, whole)
    hint = f"; did you mean {whole[meant]!r}?" if meant is not None else f"; known: {', '.join(TYPES)}"
    return f"no type {text!r}{hint}"


# Partitions.


def _partition(text: str, schema: Schema, unread: Set[str]) -> PartitionField | None:
    match = PARTITION.fullmatch(text)
    if match is None or not match["what"]:
        raise _ParseError("an empty partition: write a column, or a transform of one, such as `day(ts)`")
    call = CALL.fullmatch(match["what"])
    name, column = _transform(call) if call is not None else ("identity", match["what"])
    if column.strip().strip('"') in unread:
        return None
    source = _find(column.strip().strip('"'), schema)
    transform: Transform[object, object] = parse_transform(name)
    if isinstance(transform, UnknownTransform):
        raise _ParseError(f"{text.strip()!r}: no transform {name!r}")
    if not transform.can_transform(source.field_type):
        raise _ParseError(f"{text.strip()!r}: {name} does not go with {source.name}, which is {source.field_type}")
    field = PartitionField(source_id=source.field_id, field_id=1000, transform=transform, name="partition")
    generated = partition_name(schema, field)
    return field.model_copy(update={"name": match["name"] or generated.replace(".", "_")})


def _transform(call: re.Match[str]) -> tuple[str, str]:
    """Return Iceberg's name of a transform, and its column."""
    name = call["transform"].lower().removesuffix("s")  # Spark says days(ts)
    arguments = [part.strip() for part in _split(call["arguments"])]
    if name not in TRANSFORMS:
        known = suggestion(name, TRANSFORMS) or f"; known: {', '.join(TRANSFORMS)}"
        raise _ParseError(f"no transform {call['transform']!r}{known}")
    if name not in PARAMETRIC:
        if len(arguments) != 1:
            raise _ParseError(f"{name} takes a column, as in {name}(ts), not {call['arguments']!r}")
        return name, arguments[0]
    numbers = [one for one in arguments if one.isdigit()]
    if len(arguments) != 2 or len(numbers) != 1 or int(numbers[0]) < 1:
        raise _ParseError(f"{name} takes a number and a column, as in {name}(16, id), not {call['arguments']!r}")
    (column,) = (one for one in arguments if not one.isdigit())
    return f"{name}[{int(numbers[0])}]", column


def _find(column: str, schema: Schema) -> NestedField:
    try:
        return schema.find_field(column)
    except ValueError as error:
        names = schema.column_names
        hint = suggestion(column, names) or f"; there are: {', '.join(names)}"
        raise _ParseError(f"no column {column!r}{hint}") from error
