"""On a local directory, every file that a commit names is synced before the commit."""

from pathlib import Path

import pyarrow as pa
import pytest

from endive.catalog import synced_files
from endive.catalog.pyiceberg import EndiveCatalog
from endive.objects import local
from endive.objects.local import LocalStore

ROWS = pa.table({"id": [1, 2, 3]})


class Disk:
    """Notes what is synced, and at each write of the WAL which files of the tables are not."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: set[Path] = set()
        self.unsynced: list[str] = []
        self.commits = 0
        real_sync, put_if_absent = local.sync, LocalStore.put_if_absent

        def sync(path: Path) -> None:
            real_sync(path)
            self.synced.add(path)

        def put(store: LocalStore, path: str, body: bytes) -> bool:
            if path.startswith("wal/"):
                self.commits += 1
                files = [file for file in root.rglob("*") if "_endive" not in file.parts]
                self.unsynced += [str(file) for file in files if file not in self.synced]
            return put_if_absent(store, path, body)

        for module in (local, synced_files):
            monkeypatch.setattr(module, "sync", sync)
        monkeypatch.setattr(LocalStore, "put_if_absent", put)


@pytest.mark.parametrize("is_url", [True, False])
def test_a_commit_names_only_files_that_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_url: bool
) -> None:
    root = tmp_path / "lake"
    disk = Disk(root, monkeypatch)
    catalog = EndiveCatalog("lake", uri=root.as_uri() if is_url else str(root))
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    table.overwrite(ROWS)
    catalog.close()

    kinds = {file.suffix for file in root.rglob("*") if "_endive" not in file.parts and file.is_file()}
    assert kinds == {".parquet", ".avro", ".json"}
    assert disk.commits >= 4
    assert disk.unsynced == []
    assert {tmp_path, root, root / "db"} <= disk.synced


def test_a_file_io_of_the_user_is_used(tmp_path: Path) -> None:
    impl = "pyiceberg.io.pyarrow.PyArrowFileIO"
    catalog = EndiveCatalog("lake", **{"uri": str(tmp_path), "py-io-impl": impl})
    catalog.create_namespace("db")

    assert type(catalog.create_table("db.t", ROWS.schema).io).__name__ == "PyArrowFileIO"
    catalog.close()


def test_a_file_is_not_replaced_unless_so_asked(tmp_path: Path) -> None:
    file = synced_files.SyncedFileIO({}).new_output(str(tmp_path / "file"))
    with file.create() as stream:
        stream.write(b"1")

    with pytest.raises(FileExistsError):
        file.create()
    with file.create(overwrite=True) as stream:
        stream.write(b"2")
    assert (tmp_path / "file").read_bytes() == b"2"
