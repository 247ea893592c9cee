"""Commits of the data source, without Spark: its writer is called as Spark calls it."""

import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException
from pyiceberg.table import CommitTableResponse

from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import AttemptsExhaustedError, ConfigurationError, OutcomeUnknownError
from tests.pipeline.lakes import ROWS, Lake, batch_of, message_of


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.spark.source.committing.time.sleep", lambda _: None)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create()
    return lake


def snapshots(lake: Lake) -> int:
    with lake.table() as table:
        return len(table.metadata.snapshots)


# Once, and once only.


def test_the_files_of_all_tasks_become_visible_in_one_snapshot(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    messages = [message_of(writer, [1, 2], 0), message_of(writer, [3], 1)]
    assert lake.rows() == []  # nothing is visible before

    writer.commit([*messages])

    assert lake.ids() == [1, 2, 3]
    assert snapshots(lake) == 1


def test_of_two_attempts_at_one_partition_only_one_counts(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    messages = [message_of(writer, [1, 2], 0), message_of(writer, [1, 2], 0), message_of(writer, [3], 1)]

    writer.commit([*messages])

    assert lake.ids() == [1, 2, 3]


def test_a_repeated_commit_is_recognised_and_its_own_files_are_deleted(lake: Lake) -> None:
    first, again = lake.writer(ROWS, commit_id="monday"), lake.writer(ROWS, commit_id="monday")
    first.commit([message_of(first, [1, 2])])
    repeat = message_of(again, [1, 2])

    again.commit([repeat])

    assert lake.ids() == [1, 2]
    assert snapshots(lake) == 1
    assert {path.as_uri() for path in lake.data_files()} == lake.live_files()


def test_a_commit_that_is_called_twice_happens_once_and_keeps_its_files(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])

    writer.commit([message])
    writer.commit([message])

    assert lake.ids() == [1]
    assert snapshots(lake) == 1


def test_writes_without_a_commit_id_are_different_commits(lake: Lake) -> None:
    for _ in range(2):
        writer = lake.writer(ROWS)
        writer.commit([message_of(writer, [1])])

    assert lake.ids() == [1, 1]


def test_two_that_commit_one_id_at_the_same_moment_commit_it_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked and found nothing before either commits."""
    both, waited = threading.Barrier(2), set[int]()
    commit_table = EndiveCatalog.commit_table

    def together(self: EndiveCatalog, *arguments: object) -> CommitTableResponse:
        if threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            both.wait(60)
        return commit_table(self, *arguments)  # type: ignore[arg-type]

    writers = [lake.writer(ROWS, commit_id="monday") for _ in range(2)]
    messages = [message_of(writer, [1, 2]) for writer in writers]
    monkeypatch.setattr(EndiveCatalog, "commit_table", together)
    threads = [
        threading.Thread(target=writer.commit, args=([message],))
        for writer, message in zip(writers, messages, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert lake.ids() == [1, 2]
    assert {path.as_uri() for path in lake.data_files()} == lake.live_files()


def test_two_jobs_that_append_at_once_lose_nothing(lake: Lake) -> None:
    writers = [lake.writer(ROWS) for _ in range(6)]
    messages = [message_of(writer, [n]) for n, writer in enumerate(writers)]
    threads = [
        threading.Thread(target=writer.commit, args=([message],))
        for writer, message in zip(writers, messages, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert lake.ids() == list(range(6))


def test_a_lost_race_is_retried_on_top_of_the_winner(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast, first = lake.writer(ROWS, overwrite=True), lake.writer(ROWS), lake.writer(ROWS)
    first.commit([message_of(first, [0])])
    message = message_of(slow, [1])
    races = iter([[message_of(fast, [2])], []])
    overtaken(monkeypatch, lambda: fast.commit([*next(races)]))

    slow.commit([message])

    assert lake.ids() == [1]  # the overwrite came after the append, and replaced it
    assert snapshots(lake) == 3


def overtaken(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let something happen after a job has looked at the table and before it commits."""
    commit_table = EndiveCatalog.commit_table
    busy = threading.Lock()

    def overtaken_commit(self: EndiveCatalog, *arguments: object) -> CommitTableResponse:
        if busy.acquire(blocking=False):
            try:
                meanwhile()
            finally:
                busy.release()
        return commit_table(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(EndiveCatalog, "commit_table", overtaken_commit)


# Failures: what is deleted, and what never is.


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, lands: bool) -> None:
    """Let every commit fail, whether it was done or not."""
    commit_table = EndiveCatalog.commit_table

    def fail(self: EndiveCatalog, *arguments: object) -> CommitTableResponse:
        if lands:
            commit_table(self, *arguments)  # type: ignore[arg-type]
        raise error

    monkeypatch.setattr(EndiveCatalog, "commit_table", fail)


def test_an_unknown_outcome_that_did_happen_is_a_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])
    failing(monkeypatch, CommitStateUnknownException("lost"), lands=True)

    writer.commit([message])

    assert lake.ids() == [1]


@pytest.mark.parametrize("error", [CommitStateUnknownException("lost"), OSError("timed out")])
def test_an_unknown_outcome_deletes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])
    failing(monkeypatch, error, lands=False)

    with pytest.raises(OutcomeUnknownError):
        writer.commit([message])
    writer.abort([message])  # as Spark does after an error in commit

    assert len(lake.data_files()) == 1
    monkeypatch.undo()
    lake.writer(ROWS).commit([message_of(lake.writer(ROWS), [2])])
    assert lake.ids() == [2]


def test_nothing_that_fails_after_the_commit_deletes_its_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])
    commit_table = EndiveCatalog.commit_table

    def commit_and_be_gone(self: EndiveCatalog, *arguments: object) -> CommitTableResponse:
        answer = commit_table(self, *arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(EndiveCatalog, "load_table", unreachable)
        return answer

    def unreachable(*_: object) -> None:
        raise OSError("the catalog is gone")

    monkeypatch.setattr(EndiveCatalog, "commit_table", commit_and_be_gone)
    writer.commit([message])
    monkeypatch.undo()

    assert lake.ids() == [1]


def test_a_missing_branch_is_reported(lake: Lake) -> None:
    writer = lake.writer(ROWS, branch="trail")

    with pytest.raises(ConfigurationError, match="there is no branch 'trail'"):
        writer.commit([message_of(writer, [1])])

    assert lake.data_files() == set()


def test_a_certain_failure_deletes_the_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])
    failing(monkeypatch, CommitFailedException("another was first"), lands=False)

    with pytest.raises(AttemptsExhaustedError, match="50 races"):
        writer.commit([message])

    assert lake.data_files() == set()


def test_after_a_failed_task_abort_deletes_the_files_of_the_others(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])

    writer.abort([message, None])

    assert lake.data_files() == set()
    assert lake.rows() == []


def test_abort_after_a_commit_that_happened_deletes_nothing(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])
    writer.commit([message])

    writer.abort([message])

    assert lake.ids() == [1]


def test_a_failed_task_deletes_its_files(lake: Lake) -> None:
    writer = lake.writer(ROWS)

    def rows() -> object:
        yield batch_of([1, 2])
        raise RuntimeError("the source of the rows breaks")

    with pytest.raises(RuntimeError, match="breaks"):
        writer.write(rows())  # type: ignore[arg-type]

    assert lake.data_files() == set()


def test_a_table_that_was_dropped_and_created_again_is_not_written_to(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])
    with lake.catalog() as catalog:
        catalog.drop_table("db.t")
    lake.create()

    with pytest.raises(Exception, match="dropped and created again"):
        writer.commit([message])

    assert lake.rows() == []


def test_a_job_that_must_not_be_overtaken_is_refused_when_it_was(lake: Lake) -> None:
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1])])
    with lake.table() as table:
        head = str(table.metadata.current_snapshot_id)
    slow = lake.writer(ROWS, overwrite=True, validate_from_snapshot_id=head)
    message = message_of(slow, [2])
    first = lake.writer(ROWS)
    first.commit([message_of(first, [3])])

    with pytest.raises(ValidationException, match=f"built on snapshot {head}"):
        slow.commit([message])

    assert lake.ids() == [1, 3]
    assert {path.as_uri() for path in lake.data_files()} == lake.live_files()


def test_the_writer_survives_the_way_to_tasks_and_back(lake: Lake) -> None:
    writer = pickle.loads(pickle.dumps(lake.writer(ROWS)))  # noqa: S301 - our own
    message = pickle.loads(pickle.dumps(message_of(writer, [1])))  # noqa: S301

    writer.commit([message])

    assert lake.ids() == [1]


def test_a_table_may_get_another_partition_spec_while_it_is_written(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1])
    with lake.table() as table:
        table.update_spec().add_identity("name").commit()

    writer.commit([message])

    assert lake.ids() == [1]
    with lake.table() as table:
        (task,) = table.scan().plan_files()
        assert task.file.spec_id == 0


# Overwriting.


def partitioned(tmp_path: Path, **by: str) -> Lake:
    lake = Lake(tmp_path)
    lake.create(by=by)
    return lake


def test_overwrite_replaces_everything_in_one_snapshot(lake: Lake) -> None:
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1, 2])])
    second = lake.writer(ROWS, overwrite=True)
    second.commit([message_of(second, [3])])

    assert lake.ids() == [3]
    with lake.table() as table:
        head = table.current_snapshot()
        assert head is not None
        assert head.summary is not None
        assert head.summary.operation.value == "overwrite"
        assert len(table.metadata.snapshots) == 2


def test_overwriting_with_nothing_empties_the_table(lake: Lake) -> None:
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1])])
    second = lake.writer(ROWS, overwrite=True)
    second.commit([second.write(iter([]))])

    assert lake.rows() == []


def test_overwrite_filter_replaces_matching_rows(lake: Lake) -> None:
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1, 2, 3])])
    second = lake.writer(ROWS, overwrite=True, overwrite_filter="id >= 2")
    second.commit([message_of(second, [7])])

    assert lake.ids() == [1, 7]


def test_dynamic_overwrite_replaces_the_partitions_written(tmp_path: Path) -> None:
    lake = partitioned(tmp_path, id="bucket[4]")
    first = lake.writer(ROWS)
    first.commit([message_of(first, list(range(40)))])
    with lake.table() as table:
        files = [(task.file.partition[0], task.file) for task in table.scan().plan_files()]
    assert len(files) == 4
    second = lake.writer(ROWS, overwrite=True, overwrite_mode="dynamic")
    message = message_of(second, [5])
    (bucket,) = {file.partition[0] for file in message.files}
    second.commit([message])

    left = sum(file.record_count for number, file in files if number != bucket)
    assert 0 < left < 40
    assert len(lake.ids()) == left + 1


def test_dynamic_overwrite_without_rows_replaces_nothing(tmp_path: Path) -> None:
    lake = partitioned(tmp_path, id="bucket[4]")
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1, 2])])
    second = lake.writer(ROWS, overwrite=True, overwrite_mode="dynamic")
    second.commit([second.write(iter([]))])

    assert lake.ids() == [1, 2]
    assert snapshots(lake) == 1


def test_dynamic_overwrite_of_files_of_an_older_spec_is_refused(tmp_path: Path) -> None:
    lake = partitioned(tmp_path, id="bucket[4]")
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1, 2])])
    with lake.table() as table:
        table.update_spec().add_identity("name").commit()
    second = lake.writer(ROWS, overwrite=True, overwrite_mode="dynamic")

    with pytest.raises(ConfigurationError, match="older partition specs"):
        second.commit([message_of(second, [1])])

    assert lake.ids() == [1, 2]


def test_a_branch_is_written_without_touching_main(lake: Lake) -> None:
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1])])
    with lake.table() as table:
        head = table.metadata.current_snapshot_id
        assert head is not None
        table.manage_snapshots().create_branch(head, "trial").commit()
    second = lake.writer(ROWS, branch="trial")
    second.commit([message_of(second, [2])])

    assert lake.ids() == [1]
    assert [row["id"] for row in lake.rows(branch="trial")] == [1, 2]
    assert sorted(row["id"] for row in lake.read(branch="trial")) == [1, 2]


def test_another_catalog_of_pyiceberg_does_as_well(tmp_path: Path) -> None:
    extra = {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "catalog.warehouse": tmp_path.as_uri(),
    }
    lake = Lake(tmp_path, extra)
    lake.create()
    for _ in range(2):
        writer = lake.writer(ROWS, commit_id="monday")
        writer.commit([message_of(writer, [1, 2])])

    assert lake.ids() == [1, 2]


def test_the_interface_of_catalogs_is_pyicebergs() -> None:
    assert issubclass(EndiveCatalog, Catalog)
