"""How a manifest is written: a header with version and checksum, then JSON.

Manifests are replaced about once a minute, and operators read them to find an error, so they are text, compressed
where it pays. The header comes first, so that a truncated or foreign object is recognised before anything is parsed:

    8 bytes  magic    ENDIVEMF
    2 bytes  format version
    4 bytes  CRC-32C of the rest
    rest     JSON, compressed with zstd
"""

import struct
from collections.abc import Sequence
from dataclasses import asdict, replace
from dataclasses import fields as dataclass_fields
from itertools import accumulate, pairwise, repeat
from operator import itemgetter
from typing import Any

from google_crc32c import value as crc32c
from pydantic_core import from_json, to_json

from endive.errors import CorruptObjectError
from endive.kv.manifest import Checkpoint, Parent, SortedRun, SstInfo, StoreManifest
from endive.kv.sst.compression import compress, decompress
from endive.protocol.sequenced import Family

MAGIC = b"ENDIVEMF"
FORMAT_VERSION = 4
"""Version 1 had no `shared_epoch` and no `wal_put_ids`: it is read as a store that was never shared. Version 3 has
parents, and its SSTs in columns; it is written for clones and for manifests of many SSTs. Version 4 is the same for a
store where transactions were announced: an older Endive would show their results in scans, and delete what it does not
know. Every manifest is written in the oldest version that can hold it."""
COLUMNS_VERSION = 3
PLAIN_VERSION = 2
VERSIONS_READ = (1, PLAIN_VERSION, COLUMNS_VERSION, FORMAT_VERSION)
COLUMNS_FROM = 10_000
"""SSTs from which on they are written in columns: half a second less to write and read a hundred thousand."""
_HEADER = struct.Struct(">8sHI")
SIZE_MAX = 1 << 28
"""A manifest of 100,000 SSTs has about 20 MB of JSON."""


def fields_of(manifest: StoreManifest) -> dict[str, Any]:
    """Return the fields of a manifest as JSON has them: a row for each SST, keys in hexadecimal."""
    fields = {one.name: getattr(manifest, one.name) for one in dataclass_fields(manifest)}
    fields["checkpoints"] = [asdict(checkpoint) for checkpoint in manifest.checkpoints]
    fields["parents"] = [asdict(parent) for parent in manifest.parents]
    fields["runs"] = [{"level": run.level, "ssts": [_sst_fields(sst) for sst in run.ssts]} for run in manifest.runs]
    return fields


def _sst_fields(sst: SstInfo) -> dict[str, Any]:
    fields = sst._asdict()
    fields |= {"first_key": sst.first_key.hex(), "last_key": sst.last_key.hex()}
    if not sst.store:
        del fields["store"]
    return fields


def encode_manifest(manifest: StoreManifest) -> bytes:
    """Return the bytes of a manifest, in the oldest format that can hold it."""
    count = sum(len(run.ssts) for run in manifest.runs)
    is_new = bool(manifest.parents) or count >= COLUMNS_FROM or manifest.has_intentions
    fields = fields_of(manifest if not is_new else replace(manifest, runs=()))
    if is_new:
        fields["runs"] = [_columns(run) for run in manifest.runs]
    else:
        del fields["parents"]
    if manifest.has_intentions:
        version = FORMAT_VERSION
    else:
        del fields["has_intentions"]
        version = COLUMNS_VERSION if is_new else PLAIN_VERSION
    rest = compress(to_json(fields))
    return _HEADER.pack(MAGIC, version, crc32c(rest)) + rest


def _columns(run: SortedRun) -> dict[str, Any]:
    """Return a run as one list for each field of its SSTs."""
    ids, sizes, rows, firsts, lasts, offsets = (list(map(itemgetter(place), run.ssts)) for place in range(6))
    keys = {"first_keys": _joined(firsts), "last_keys": _joined(lasts)}
    return {"level": run.level, "id": ids, "size_bytes": sizes, "rows": rows, "index_offset": offsets} | keys


def _joined(keys: Sequence[bytes]) -> list[Any]:
    """Return keys as their lengths and all of them in one string: faster than a string for each."""
    return [list(map(len, keys)), b"".join(keys).hex()]


def _separated(joined: list[Any]) -> list[bytes]:
    lengths, together = joined[0], bytes.fromhex(joined[1])
    ends = list(accumulate(lengths, initial=0))
    if ends[-1] != len(together):
        raise ValueError("lengths of keys do not add up")
    return [together[start:end] for start, end in pairwise(ends)]


def decode_manifest(path: str, body: bytes) -> StoreManifest:
    """Return the manifest in `body`; `CorruptObjectError` if there is none."""
    if len(body) < _HEADER.size or not body.startswith(MAGIC):
        raise CorruptObjectError(path, "not a manifest of an Endive store, or cut short")
    _, version, checksum = _HEADER.unpack_from(body)
    if version not in VERSIONS_READ:
        raise CorruptObjectError(path, f"format version {version}; this Endive reads up to version {FORMAT_VERSION}")
    rest = body[_HEADER.size :]
    if crc32c(rest) != checksum:
        raise CorruptObjectError(path, "the manifest's checksum does not match: the object is damaged")
    try:
        return _manifest(from_json(decompress(path, rest, SIZE_MAX)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptObjectError(path, f"the manifest cannot be read: {error}") from error


def _manifest(fields: dict[str, Any]) -> StoreManifest:
    parents = tuple(Parent(**parent) for parent in fields.pop("parents", ()))
    runs = tuple(_run(run, parents) for run in fields.pop("runs"))
    checkpoints = tuple(Checkpoint(**checkpoint) for checkpoint in fields.pop("checkpoints"))
    put_ids = tuple(map(str, fields.pop("wal_put_ids", ())))
    return StoreManifest(**fields, runs=runs, checkpoints=checkpoints, wal_put_ids=put_ids, parents=parents)


def _run(fields: dict[str, Any], parents: tuple[Parent, ...]) -> SortedRun:
    if "ssts" in fields:  # up to version 2
        return SortedRun(fields["level"], tuple(_sst(sst) for sst in fields["ssts"]))
    ids = fields["id"]
    stores = [_store_of(sst_id, parents) for sst_id in ids] if parents else repeat("", len(ids))
    firsts, lasts = _separated(fields["first_keys"]), _separated(fields["last_keys"])
    columns = (ids, fields["size_bytes"], fields["rows"], firsts, lasts, fields["index_offset"], stores)
    return SortedRun(fields["level"], tuple(map(SstInfo._make, zip(*columns, strict=True))))


def _store_of(sst_id: int, parents: tuple[Parent, ...]) -> str:
    return next((parent.url for parent in parents if sst_id <= parent.sst_id_last), "")


def _sst(fields: dict[str, Any]) -> SstInfo:
    first, last = bytes.fromhex(fields.pop("first_key")), bytes.fromhex(fields.pop("last_key"))
    return SstInfo(**fields, first_key=first, last_key=last)


MANIFESTS: Family[StoreManifest] = Family("manifest/", ".manifest", encode_manifest, decode_manifest)
"""Where manifests are: `manifest/00000000000000000001.manifest` and so on."""
