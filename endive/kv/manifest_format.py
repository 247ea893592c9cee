"""How a manifest is written: a header with version and checksum, then JSON.

Manifests are replaced about once a minute and read by people who look for an error, so they are text, compressed
where it pays. The header comes first, so that a truncated or foreign object is told apart before anything is parsed:

    8 bytes  magic    ENDIVEMF
    2 bytes  format version
    4 bytes  CRC-32C of the rest
    rest     JSON, compressed with zstd
"""

import json
import struct
from dataclasses import asdict
from typing import Any

from google_crc32c import value as crc32c

from endive.errors import CorruptObjectError
from endive.kv.manifest import Checkpoint, SortedRun, SstInfo, StoreManifest
from endive.kv.sst.compression import compress, decompress
from endive.protocol.sequenced import Family

MAGIC = b"ENDIVEMF"
FORMAT_VERSION = 2
"""Version 1 had no `shared_epoch` and no `wal_put_ids`: it is read as a store that was never shared."""
VERSIONS_READ = (1, FORMAT_VERSION)
_HEADER = struct.Struct(">8sHI")
SIZE_MAX = 1 << 28
"""A manifest of 100,000 SSTs has about 20 MB of JSON."""


def encode_manifest(manifest: StoreManifest) -> bytes:
    """Return the bytes of a manifest."""
    text = json.dumps(asdict(manifest), default=bytes.hex, separators=(",", ":")).encode()
    rest = compress(text)
    return _HEADER.pack(MAGIC, FORMAT_VERSION, crc32c(rest)) + rest


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
        return _manifest(json.loads(decompress(path, rest, SIZE_MAX)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptObjectError(path, f"the manifest cannot be read: {error}") from error


def _manifest(fields: dict[str, Any]) -> StoreManifest:
    runs = tuple(_run(run) for run in fields.pop("runs"))
    checkpoints = tuple(Checkpoint(**checkpoint) for checkpoint in fields.pop("checkpoints"))
    put_ids = tuple(map(str, fields.pop("wal_put_ids", ())))
    return StoreManifest(**fields, runs=runs, checkpoints=checkpoints, wal_put_ids=put_ids)


def _run(fields: dict[str, Any]) -> SortedRun:
    return SortedRun(fields["level"], tuple(_sst(sst) for sst in fields["ssts"]))


def _sst(fields: dict[str, Any]) -> SstInfo:
    first, last = bytes.fromhex(fields.pop("first_key")), bytes.fromhex(fields.pop("last_key"))
    return SstInfo(**fields, first_key=first, last_key=last)


MANIFESTS: Family[StoreManifest] = Family("manifest/", ".manifest", encode_manifest, decode_manifest)
"""Where manifests are: `manifest/00000000000000000001.manifest` and so on."""
