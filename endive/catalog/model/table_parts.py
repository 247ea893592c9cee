"""Large parts of a table's record in rows of their own: schemas, partition specs, sort orders, properties.

Most commits change none of them, but every commit writes the table's record. So a list that takes more than
`INLINE_BYTES_MAX` is not in the record. Its values are in rows `__parts/{uuid}/{digest}`, and the record has their
digests under `parts`. A row never changes, since its key is the digest of its value; a commit puts the rows that are
new and deletes those that the record no longer names.

A part that has a row keeps it while the record has the same value, whatever its size: a record that is written again
without a change (its metadata file is known now) names the same rows.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from threading import Lock
from typing import Any

from pydantic_core import from_json, to_json
from pyiceberg.schema import Schema

from endive.catalog.model.encoding import ByIdentity

INLINE_BYTES_MAX = 8 * 1024
"""Size of a list that stays in the record: schemas of about a hundred and twenty columns in all."""
PARTS = "parts"
"""Field of a record that names its parts."""
SCHEMAS = "schemas"
SINGLE = ("properties", "partition_specs", "sort-orders", "schema")
"""Values with one row each; the last two are among Iceberg's own fields (`schema` is of format 1)."""
DIGEST_BYTES = 16
SCHEMAS_CACHED = 256
HELD_BYTES_MAX = 16 * 1024 * 1024
"""Size of the cache of parts, in bytes of JSON."""

Json = dict[str, Any]


def digest_of(body: bytes) -> str:
    """Return the name of a part."""
    return blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


class PartCache:
    """Values of parts by their digests, up to a number of bytes, oldest first out. Safe to use from many threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[str, tuple[Schema | bytes, int]] = {}
        self._bytes_held = 0
        self._lock = Lock()

    def add(self, digest: str, value: Schema | bytes, size_bytes: int) -> None:
        """Add a schema, or the JSON of another part."""
        with self._lock:
            if digest in self._held:
                return
            self._held[digest] = value, size_bytes
            self._bytes_held += size_bytes
            while self._bytes_held > self._bytes_max:
                self._bytes_held -= self._held.pop(next(iter(self._held)))[1]

    def get(self, digest: str) -> Schema | bytes | None:
        """Return a value; None if it is not held."""
        held = self._held.get(digest)
        return None if held is None else held[0]


parts_held = PartCache(HELD_BYTES_MAX)


def _encoded_schema(schema: Schema) -> tuple[str, bytes]:
    body = to_json(schema.model_dump(mode="json"))
    digest = digest_of(body)
    parts_held.add(digest, schema, len(body))  # the same object, so that caches by identity know it
    return digest, body


_schema_part = ByIdentity[Schema, tuple[str, bytes]](SCHEMAS_CACHED, _encoded_schema)


def take_parts(fields: Json, schemas: Iterable[Schema], stored: frozenset[str]) -> dict[str, bytes]:
    """Replace the large parts in the JSON of a record by their digests; return them. `stored`: those with a row."""
    parts: dict[str, bytes] = {}
    places: Json = {}
    listed = [_schema_part(schema) for schema in schemas]
    if sum(len(body) for _, body in listed) > INLINE_BYTES_MAX or any(digest in stored for digest, _ in listed):
        parts |= dict(listed)
        places[SCHEMAS] = [digest for digest, _ in listed]
        fields["schema"][SCHEMAS] = []
    for name in SINGLE:
        home = _home(fields, name)
        body = to_json(home[name]) if home.get(name) else b""
        digest = digest_of(body) if stored or len(body) > INLINE_BYTES_MAX else ""
        if len(body) > INLINE_BYTES_MAX or digest in stored:
            parts_held.add(digest, body, len(body))
            parts[digest], places[name], home[name] = body, digest, None
    if places:
        fields[PARTS] = places
    return parts


def _home(fields: Json, name: str) -> Json:
    """Return the object that has a single part."""
    return fields if name in ("properties", "partition_specs") else fields["iceberg"]


def digests_in(fields: Json) -> frozenset[str]:
    """Return the digests of the parts that the JSON of a record names."""
    places: Mapping[str, Any] = fields.get(PARTS, {})
    single = [digest for name, digest in places.items() if name != SCHEMAS]
    return frozenset([*places.get(SCHEMAS, ()), *single])


def own_bytes(digests: Iterable[str]) -> int:
    """Return the size of those parts that a record has for itself: schemas are shared by its versions."""
    held = (parts_held.get(digest) for digest in digests)
    return sum(len(part) for part in held if isinstance(part, bytes))


def put_back(fields: Json, rows: Mapping[str, bytes]) -> None:
    """Put the parts into the JSON of a record again; the inverse of `take_parts`. `rows`: those that are not held."""
    for name, place in fields.get(PARTS, {}).items():
        if name == SCHEMAS:
            fields["schema"][SCHEMAS] = [_schema(digest, rows) for digest in place]
        else:
            _home(fields, name)[name] = _single(place, rows)


def _single(digest: str, rows: Mapping[str, bytes]) -> Any:  # noqa: ANN401 - JSON, or a schema
    held = parts_held.get(digest)
    if isinstance(held, Schema):
        return held  # of a table of format 1, which is among its schemas
    body = held if held is not None else _row(digest, rows)
    parts_held.add(digest, body, len(body))
    return from_json(body)


def _schema(digest: str, rows: Mapping[str, bytes]) -> Schema:
    held = parts_held.get(digest)
    if not isinstance(held, Schema):
        body = _row(digest, rows)
        held = Schema.model_validate(from_json(body))
        parts_held.add(digest, held, len(body))
    return held


def _row(digest: str, rows: Mapping[str, bytes]) -> bytes:
    if digest not in rows:
        raise LookupError(f"its part {digest} is not there")
    return rows[digest]
