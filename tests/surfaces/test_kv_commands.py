"""`endive kv`, as a user types it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from endive.cli.app import app
from endive.errors import CheckpointGoneError, ConfigurationError, CorruptObjectError, StoreNotFoundError
from endive.objects.records import open_records

Kv = Callable[..., Result]


@pytest.fixture
def kv(tmp_path: Path) -> Kv:
    """Run a command on a store in a directory of its own: `kv("put", "key", "value")`."""
    url = (tmp_path / "store").as_uri()

    def run(*words: str, code: int = 0) -> Result:
        command = words[:2] if words[0] == "checkpoint" else words[:1]
        result = CliRunner().invoke(app, ["kv", *command, url, *words[len(command) :]])
        assert result.exit_code == code, result.output
        return result

    return run


def test_stored_rows_are_read_and_scanned(kv: Kv) -> None:
    assert kv("open").stdout == "epoch 1, next WAL entry 2\n"
    kv("put", "b", "2")
    kv("put", "a", "1")
    kv("put", "ab", "3")
    kv("delete", "b")

    assert kv("get", "a").stdout == "1\n"
    assert kv("get", "b", code=1).stdout == ""
    assert kv("scan").stdout == "a\t1\nab\t3\n"
    assert kv("scan", "--prefix", "ab").stdout == "ab\t3\n"
    assert kv("scan", "--start", "a", "--end", "ab").stdout == "a\t1\n"
    assert kv("scan", "--limit", "1").stdout == "a\t1\n"
    assert kv("scan", "--hex").stdout == "61\t31\n6162\t33\n"


def test_compact_collect_and_check(kv: Kv) -> None:
    for number in range(5):
        kv("put", f"key{number}", "value")
        kv("compact")
    assert "1 WAL entries" not in kv("compact", "--all").stdout
    assert kv("collect", "--retention-s", "0").stdout.startswith("deleted ")

    assert "0 findings" in kv("check").stdout
    assert kv("scan").stdout.count("\n") == 5
    assert "fence" in kv("wal").stdout
    assert "writer epoch" in kv("stats").stdout
    manifest = json.loads(kv("manifest").stdout)
    assert manifest["writer_epoch"] == 1  # puts share an epoch
    assert json.loads(kv("manifest", "--id", str(manifest["id"])).stdout) == manifest


def test_a_checkpoint_is_read_by_name_until_it_is_removed(kv: Kv) -> None:
    kv("put", "a", "1")
    checkpoint_id = kv("checkpoint", "create", "--name", "before", "--lifetime-s", "0").stdout.strip()
    kv("put", "a", "2")

    assert kv("get", "a", "--at", "before").stdout == "1\n"
    assert kv("get", "a").stdout == "2\n"
    assert checkpoint_id in kv("checkpoint", "list").stdout
    kv("checkpoint", "prolong", checkpoint_id, "--lifetime-s", "60")
    kv("checkpoint", "remove", checkpoint_id)
    assert isinstance(kv("get", "a", "--at", "before", code=1).exception, CheckpointGoneError)


def test_a_checkpoint_is_deleted_by_name_and_an_unknown_one_is_an_error(kv: Kv) -> None:
    kv("put", "a", "1")
    kv("checkpoint", "create", "--name", "before")

    kv("checkpoint", "delete", "before")

    assert "before" not in kv("checkpoint", "list").stdout
    for gone in ("before", "unknown"):
        assert isinstance(kv("checkpoint", "delete", gone, code=1).exception, CheckpointGoneError)


def test_two_checkpoints_do_not_have_the_same_name(kv: Kv) -> None:
    kv("put", "a", "1")
    first = kv("checkpoint", "create", "--name", "before").stdout.strip()

    error = kv("checkpoint", "create", "--name", "before", code=1).exception
    assert isinstance(error, ConfigurationError)
    assert "there is a checkpoint of this name" in str(error)
    kv("checkpoint", "create")
    kv("checkpoint", "create")  # without a name, any number
    kv("checkpoint", "delete", first)
    kv("checkpoint", "create", "--name", "before")


def test_checkpoints_are_listed_with_the_moment_at_which_they_expire(kv: Kv) -> None:
    kv("put", "a", "1")
    kv("checkpoint", "create", "--name", "hour")
    kv("checkpoint", "create", "--name", "ever", "--lifetime-s", "0")

    listed = kv("checkpoint", "list").stdout

    assert "expires (UTC)" in listed
    assert re.search(r"hour +\d+ +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", listed)
    assert re.search(r"ever +\d+ +never", listed)


def test_damage_is_named_and_the_code_is_1(kv: Kv, tmp_path: Path) -> None:
    kv("put", "a", "1")
    kv("compact")
    (path,) = (tmp_path / "store" / "levels").iterdir()
    path.write_bytes(path.read_bytes()[:-1])

    assert path.name in kv("check", code=1).stdout.replace("\n", "")
    assert isinstance(kv("get", "a", code=1).exception, CorruptObjectError)


def test_a_place_without_a_store_is_named(kv: Kv) -> None:
    for command in (("get", "a"), ("delete", "a"), ("check",), ("compact",), ("stats",), ("checkpoint", "list")):
        error = kv(*command, code=1).exception
        assert isinstance(error, StoreNotFoundError)
        assert f"`endive kv open {error.url}` makes one" in str(error)


def test_a_place_that_would_be_gone_is_refused() -> None:
    for words in (["put", "memory://x", "a", "1"], ["open", "memory://x"], ["get", "memory://x", "a"]):
        result = CliRunner().invoke(app, ["kv", *words])
        assert isinstance(result.exception, ConfigurationError)
        assert "gone when the command ends" in str(result.exception)


def test_recover_is_for_stores_with_a_record_store(kv: Kv, tmp_path: Path) -> None:
    kv("put", "a", "1")
    assert isinstance(kv("recover", code=1).exception, ConfigurationError)

    records = f"sqlite://{tmp_path}/records.db"
    other = str(tmp_path / "other")
    for words in (["put", other, "a", "1"], ["get", other, "a"], ["recover", other]):
        result = CliRunner().invoke(app, ["kv", *words, "--records", records])
        assert result.exit_code == 0, result.output
    assert result.stdout == "0 creates finished, 0 temporary objects deleted, 0 lost\n"


def test_lost_creates_are_reported_and_released(tmp_path: Path) -> None:
    records, store = f"sqlite://{tmp_path}/records.db", str(tmp_path / "store")

    def kv_with_records(*words: str) -> Result:
        return CliRunner().invoke(app, ["kv", *words, "--records", records])

    kv_with_records("put", store, "a", "1")
    path = f"wal/{max(file.name for file in (tmp_path / 'store' / 'wal').iterdir())}"
    following = path.replace(path[4:24], f"{int(path[4:24]) + 1:020d}")
    open_records(records).insert(following, f"{following}.{0:032x}.{0:08x}")

    assert isinstance(kv_with_records("put", store, "b", "1").exception, CorruptObjectError)
    reported = kv_with_records("recover", store)
    assert (reported.exit_code, reported.stdout.splitlines()[0]) == (1, f"lost: {following}")
    released = kv_with_records("recover", store, "--release-lost")
    assert (released.exit_code, released.stdout.splitlines()[0]) == (0, f"lost: {following}, released")

    assert kv_with_records("put", store, "b", "1").exit_code == 0
    assert kv_with_records("get", store, "b").stdout == "1\n"
