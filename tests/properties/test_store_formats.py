"""The store's bytes: what is written is read back, and what is damaged is refused without a crash."""

import json
import struct
from dataclasses import asdict, replace
from unittest.mock import patch

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from endive.errors import CorruptObjectError
from endive.kv.manifest import Checkpoint, Parent, SortedRun, SstInfo, StoreManifest
from endive.kv.manifest_format import MAGIC, decode_manifest, encode_manifest
from endive.kv.sst.bloom import KEYS_MIN, build_filter, may_contain
from endive.kv.sst.compression import compress
from endive.kv.sst.format import (
    FENCE_SIZE_BYTES,
    Rows,
    decode_footer,
    decode_index,
    decode_sst,
    encode_fence,
    encode_sst,
)

PUT_ID = "ab" * 16
keys = st.binary(max_size=40)
values = st.none() | st.binary(max_size=300)
numbers = st.integers(0, 2**63)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    held = draw(st.dictionaries(keys, values, min_size=1, max_size=60))
    ordered = sorted(held)
    return Rows(
        ordered, [held[key] for key in ordered], draw(st.lists(numbers, min_size=len(held), max_size=len(held)))
    )


@given(rows(), st.integers(0, 2**64 - 1))
def test_an_sst_holds_what_was_written(held: Rows, epoch: int) -> None:
    footer, found = decode_sst("path", encode_sst(held, epoch, PUT_ID))

    assert found == held
    assert (footer.epoch, footer.put_id, footer.rows) == (epoch, PUT_ID, len(held.keys))
    assert (footer.seq_first, footer.seq_last) == (min(held.seqs), max(held.seqs))


def test_many_rows_fill_many_blocks_and_get_a_filter() -> None:
    held = Rows([f"{n:06d}".encode() for n in range(5000)], [bytes(100)] * 5000, list(range(1, 5001)))
    index = decode_index("path", encode_sst(held, 1, PUT_ID))

    assert len(index.places) > 30
    assert all(may_contain(index.filter, key) for key in held.keys)
    misses = sum(may_contain(index.filter, f"x{n}".encode()) for n in range(10_000))
    assert misses < 300
    number = index.block_of(b"002500")
    assert number is not None
    assert index.first_keys[number] <= b"002500"
    assert index.block_of(b"00") is None
    assert index.block_of(b"z") is None


def test_few_keys_get_no_filter() -> None:
    assert build_filter([bytes(2)] * (KEYS_MIN - 1)) == b""
    assert may_contain(b"", b"anything")


def test_a_fence_is_smaller_than_anything_with_a_row() -> None:
    fence = encode_fence(7, PUT_ID)

    assert len(fence) == FENCE_SIZE_BYTES
    assert decode_footer("path", fence).is_fence
    assert decode_sst("path", fence)[1] == Rows([], [], [])
    assert len(encode_sst(Rows([b""], [None], [0]), 1, PUT_ID)) > FENCE_SIZE_BYTES


@given(rows(), st.data())
def test_a_damaged_sst_is_refused(held: Rows, data: st.DataObject) -> None:
    body = bytearray(encode_sst(held, 1, PUT_ID))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(CorruptObjectError):
        decode_sst("path", bytes(body))


@given(rows(), st.data())
def test_a_truncated_sst_is_refused(held: Rows, data: st.DataObject) -> None:
    body = encode_sst(held, 1, PUT_ID)

    with pytest.raises(CorruptObjectError):
        decode_sst("path", body[: data.draw(st.integers(0, len(body) - 1))])


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_foreign_bytes_are_refused(body: bytes) -> None:
    for decode in (decode_sst, decode_manifest, decode_index):
        with pytest.raises(CorruptObjectError):
            decode("path", body)
        with pytest.raises(CorruptObjectError):
            decode("path", b"ENDIVEMF" + body)


@given(rows(), st.data())
def test_lengths_that_lie_under_a_right_checksum_are_refused(held: Rows, data: st.DataObject) -> None:
    """A checksum is no defence against a writer that is wrong: every length is checked as well."""
    from endive.kv.sst import format as sst

    payload = bytearray(sst._payload(held, 0, len(held.keys)))
    place = data.draw(st.integers(0, min(len(payload), 4 + 16 * len(held.keys)) - 1))
    payload[place] ^= 1 << data.draw(st.integers(0, 7))
    stored = sst._stored(bytes(payload))
    where = sst.BlockPlace(0, len(stored), crc32c(stored), b"")
    try:
        found = sst.decode_block("path", where, stored)
    except CorruptObjectError:
        return
    assert len(found.keys) == len(found.values) == len(found.seqs)  # a bit of a sequence number cannot be noticed


infos = st.builds(SstInfo, numbers, numbers, numbers, keys, keys, numbers, st.just(""))
runs = st.builds(SortedRun, st.integers(0, 9), st.tuples(infos) | st.just(()))
checkpoints = st.builds(Checkpoint, st.text(max_size=8), numbers, numbers, st.text(max_size=8))
manifests = st.builds(
    StoreManifest,
    put_id=st.just(PUT_ID),
    writer_epoch=numbers,
    wal_id_last_compacted=numbers,
    runs=st.lists(runs, max_size=3).map(tuple),
    checkpoints=st.lists(checkpoints, max_size=3).map(tuple),
)


@given(manifests)
def test_a_manifest_holds_what_was_written(manifest: StoreManifest) -> None:
    assert decode_manifest("path", encode_manifest(manifest)) == manifest


@given(manifests)
def test_a_manifest_of_many_files_holds_what_was_written(manifest: StoreManifest) -> None:
    with patch("endive.kv.manifest_format.COLUMNS_FROM", 0):
        body = encode_manifest(manifest)

    assert body[9] == 3
    assert decode_manifest("path", body) == manifest


@given(st.lists(infos, max_size=3, unique_by=lambda sst: sst.id), numbers)
def test_a_clones_manifest_says_which_store_has_a_file(ssts: list[SstInfo], last: int) -> None:
    parent = Parent("file:///elsewhere", "id", last)
    placed = tuple(sst._replace(store=parent.url if sst.id <= last else "") for sst in ssts)
    manifest = StoreManifest(PUT_ID, runs=(SortedRun(0, placed),), parents=(parent,))

    assert decode_manifest("path", encode_manifest(manifest)) == manifest


@given(manifests, st.data())
def test_a_damaged_manifest_is_refused(manifest: StoreManifest, data: st.DataObject) -> None:
    body = bytearray(encode_manifest(manifest))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(CorruptObjectError) as raised:
        decode_manifest("manifest/1", bytes(body))
    assert raised.value.path == "manifest/1"


def test_a_newer_format_is_named() -> None:
    body = bytearray(encode_manifest(StoreManifest(PUT_ID)))
    body[9] = 5

    with pytest.raises(CorruptObjectError, match="format version 5; this Endive reads up to version 4"):
        decode_manifest("path", bytes(body))


def test_a_manifest_from_before_stores_were_shared_is_read() -> None:
    fields = asdict(StoreManifest(PUT_ID, writer_epoch=3, wal_id_last_compacted=7))
    del fields["shared_epoch"], fields["wal_put_ids"]
    rest = compress(json.dumps(fields).encode())
    body = struct.pack(">8sHI", MAGIC, 1, crc32c(rest)) + rest

    manifest = decode_manifest("path", body)

    assert manifest == StoreManifest(PUT_ID, writer_epoch=3, wal_id_last_compacted=7)
    assert not manifest.is_joinable
    assert manifest.put_id_of(7) is None


def test_two_claims_never_have_the_same_bytes() -> None:
    manifest = StoreManifest(PUT_ID)

    assert encode_manifest(manifest) != encode_manifest(replace(manifest, put_id="cd" * 16))
