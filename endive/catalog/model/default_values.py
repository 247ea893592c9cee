"""Default values of columns, which PyIceberg loses when it assigns new field ids."""

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


def with_default_values(given: Schema, fresh: Schema) -> Schema:
    """Return the schema with new field ids, `fresh`, with the default values of the same columns of `given`."""
    columns = _fields(given.columns, fresh.columns)
    if all(new is old for new, old in zip(columns, fresh.columns, strict=True)):
        return fresh
    return Schema(*columns, schema_id=fresh.schema_id, identifier_field_ids=fresh.identifier_field_ids)


def _fields(given: tuple[NestedField, ...], fresh: tuple[NestedField, ...]) -> list[NestedField]:
    return [_field(one, other) for one, other in zip(given, fresh, strict=True)]


def _field(given: NestedField, fresh: NestedField) -> NestedField:
    inner = _type(given.field_type, fresh.field_type)
    if inner is fresh.field_type and given.initial_default is None and given.write_default is None:
        return fresh
    return NestedField(
        field_id=fresh.field_id,
        name=fresh.name,
        field_type=inner,
        required=fresh.required,
        doc=fresh.doc,
        initial_default=given.initial_default,
        write_default=given.write_default,
    )


def _type(given: IcebergType, fresh: IcebergType) -> IcebergType:
    match given, fresh:
        case StructType(), StructType():
            fields = _fields(given.fields, fresh.fields)
            same = all(new is old for new, old in zip(fields, fresh.fields, strict=True))
            return fresh if same else StructType(*fields)
        case ListType(), ListType():
            element = _type(given.element_type, fresh.element_type)
            if element is fresh.element_type:
                return fresh
            return ListType(element_id=fresh.element_id, element=element, element_required=fresh.element_required)
        case MapType(), MapType():
            key, value = _type(given.key_type, fresh.key_type), _type(given.value_type, fresh.value_type)
            if key is fresh.key_type and value is fresh.value_type:
                return fresh
            return MapType(fresh.key_id, key, fresh.value_id, value, fresh.value_required)
        case _:
            return fresh
