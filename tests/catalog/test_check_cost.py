"""What a check reads: every list and every manifest once, and each entry of a list once, however old the table is."""

from collections import Counter

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from endive.catalog.maintenance.raw_lists import RawList
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.tables import numbers

SNAPSHOTS = 12


def test_a_check_decodes_each_entry_of_the_lists_once(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(SNAPSHOTS):
        table.append(numbers(number))
    decoded: list[int] = []
    reads: Counter[str] = Counter()
    decode, new_input = RawList._decoded, PyArrowFileIO.new_input

    def counting(self: RawList, records: bytes, count: int) -> tuple[ManifestFile, ...]:
        decoded.append(count)
        return decode(self, records, count)

    def noting(self: PyArrowFileIO, location: str) -> object:
        reads[location.rpartition("/")[2]] += 1
        return new_input(self, location)

    monkeypatch.setattr(RawList, "_decoded", counting)
    monkeypatch.setattr(PyArrowFileIO, "new_input", noting)

    assert catalog.kv.check() == []

    assert sum(decoded) == SNAPSHOTS  # all lists together have 78 entries
    assert set(reads.values()) == {1}
    assert len([name for name in reads if name.endswith(".avro")]) == 2 * SNAPSHOTS
