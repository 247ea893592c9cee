"""Manifest lists that copy the blocks of their parents."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table import Table

from endive.catalog.commit import manifest_lists
from endive.catalog.commit.manifest_lists import Block, BytesFile, avro_blocks, on_top
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.commits.interrupted import rows_of
from tests.catalog.tables import NAME, NUMBERS, numbers


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the number of records of each block that PyIceberg encodes."""
    counts: list[int] = []
    write_block = AvroOutputFile.write_block

    def noted(self: AvroOutputFile[Any], objects: list[Any]) -> None:
        counts.append(len(objects))
        write_block(self, objects)

    monkeypatch.setattr(AvroOutputFile, "write_block", noted)
    return counts


def manifests_of(table: Table) -> list[ManifestFile]:
    current = table.refresh().current_snapshot()
    assert current is not None
    with table.io.new_input(current.manifest_list).open() as stream:
        body = stream.read()
    return list(read_manifest_list(BytesFile("", body)))


@pytest.mark.parametrize("codec", ["null", "gzip", "zstd"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_an_append_encodes_its_own_manifest_only(
    catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch, encoded: list[int], codec: str, version: str
) -> None:
    monkeypatch.setattr(manifest_lists, "BLOCKS_MAX", 4)
    monkeypatch.setattr(manifest_lists, "SMALL_BLOCK", 4)
    properties = {"write.avro.compression-codec": codec, "format-version": version}
    table = catalog.create_table(NAME, NUMBERS, properties=properties)
    for number in range(11):
        table.append(numbers(number))
    assert max(encoded) == 1

    current = table.current_snapshot()
    assert current is not None
    with table.io.new_input(current.manifest_list).open() as stream:
        blocks = avro_blocks(stream.read()).blocks
    assert [one.count for one in blocks] == [1, 1, 1, 4, 4]
    found = manifests_of(table)
    assert [one.added_snapshot_id for one in found] == [one.snapshot_id for one in reversed(table.metadata.snapshots)]
    if version == "2":
        assert [one.sequence_number for one in found] == list(range(11, 0, -1))
    assert rows_of(table) == list(range(11))
    assert catalog.kv.check() == []


def test_a_rebased_append_encodes_its_own_manifest_only(
    catalog: EndiveCatalog, table: Table, encoded: list[int]
) -> None:
    table.append(numbers(0))
    handles = [catalog.load_table(NAME) for _ in range(5)]
    for number, handle in enumerate(handles, start=1):
        handle.append(numbers(number))

    assert max(encoded) == 1
    assert [one.sequence_number for one in manifests_of(table)] == [6, 5, 4, 3, 2, 1]
    assert rows_of(table) == [0, 1, 2, 3, 4, 5]
    assert catalog.kv.check() == []


def test_manifests_of_deleted_files_are_left_out(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    table.append(numbers(2))
    table.delete("n = 1")
    assert len([one for one in manifests_of(table) if not one.has_added_files()]) == 1
    table.append(numbers(3))
    table.append(numbers(4))

    assert all(one.has_added_files() for one in manifests_of(table))
    assert rows_of(table) == [2, 3, 4]
    assert catalog.kv.check() == []


def test_a_parent_with_another_codec_is_decoded(catalog: EndiveCatalog, table: Table, encoded: list[int]) -> None:
    table.append(numbers(1))
    catalog.kv.update_properties(NAME, {"write.avro.compression-codec": "zstd"})
    table.refresh().append(numbers(2))
    assert encoded[-1] == 2
    table.append(numbers(3))
    assert encoded[-1] == 1

    assert rows_of(table) == [1, 2, 3]


def test_an_append_of_nothing_keeps_its_parents_manifests(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    table.append(numbers())
    table.append(numbers(2))

    assert rows_of(table) == [1, 2]


def test_several_appends_of_one_transaction(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(0))
    with table.transaction() as transaction:
        transaction.append(numbers(1))
        transaction.append(numbers(2))

    assert rows_of(table) == [0, 1, 2]
    assert [one.sequence_number for one in manifests_of(table)] == [3, 2, 1]
    assert catalog.kv.check() == []


# Avro.


def _file(blocks: Sequence[tuple[int, bytes]], schema: bytes = b"s") -> bytes:
    sync = b"0123456789abcdef"
    names = {b"avro.schema": schema, b"avro.codec": b"null"}
    long = manifest_lists._long
    pairs = b"".join(long(len(one)) + one for pair in names.items() for one in pair)
    header = manifest_lists.MAGIC + long(len(names)) + pairs + long(0) + sync
    return header + b"".join(long(count) + long(len(body)) + body + sync for count, body in blocks)


def test_blocks_are_copied() -> None:
    whole = on_top(_file([(1, b"own")]), _file([(300, b"x" * 1000), (2, b"")]))

    assert whole is not None
    assert avro_blocks(whole).blocks == [Block(1, b"own"), Block(300, b"x" * 1000), Block(2, b"")]
    assert on_top(_file([(0, b"")]), _file([(1, b"a")])) == _file([(1, b"a")])
    assert on_top(_file([(1, b"a")]), _file([(1, b"b")], b"another")) is None


@pytest.mark.parametrize("cut", [1, 5, 20, 60, -1])
def test_a_damaged_file_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="Avro"):
        avro_blocks(_file([(1, b"body of a block")])[:cut])


@pytest.mark.parametrize("number", [0, 1, -1, 63, 64, -64, -65, 300, 2**40, -(2**40)])
def test_numbers_are_read_as_they_were_written(number: int) -> None:
    encoded = manifest_lists._long(number)
    assert manifest_lists._read_long(encoded, 0) == (number, len(encoded))
