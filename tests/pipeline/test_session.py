import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from endive.errors import ConfigurationError, SparkUnavailableError
from endive.spark import session
from endive.spark.master import cores_here, parse_master, reach
from endive.spark.naming import named
from endive.spark.session import spark_session

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 600.0


# Masters.


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (None, f"local[{cores_here()},12]"),
        ("local", "local[1,12]"),
        ("local[3]", "local[3,12]"),
        (" local[*] ", f"local[{cores_here()},12]"),
        ("local[2, 9]", "local[2,9]"),
        ("spark://host-1.example:7077", "spark://host-1.example:7077"),
        ("spark://a:7077,b:7078", "spark://a:7077,b:7078"),
        ("yarn", "yarn"),
        ("k8s://https://host:443", "k8s://https://host:443"),
    ],
)
def test_a_master_that_spark_knows_is_taken_and_local_ones_try_tasks_again(given: str | None, taken: str) -> None:
    assert parse_master(given).url == taken


def test_every_master_of_a_cluster_is_known() -> None:
    assert parse_master("spark://a:7077,[::1]:7078").addresses == (("a", 7077), ("::1", 7078))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("spark://host", "'host' is not host:port"),
        ("spark://", "'' is not host:port"),
        ("spark://host:7077,", "'' is not host:port"),
        ("spark://host:70777", "70777 is no port"),
        ("spark://host:7077/", "'host:7077/' is not host:port"),
        ("spark:host:7077", "not a master URL"),
        ("http://host:8080", "not a master URL"),
        ("", "not a master URL"),
        ("local[0]", "not a local master"),
        ("local[two]", "not a local master"),
        ("local-cluster[2,1,1024]", "not a local master"),
    ],
)
def test_a_malformed_master_is_reported_before_anything_starts(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught, spark_session(url):
        pass

    (fault,) = caught.value.errors
    assert message in fault
    assert "spark://host:7077" in fault


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_master_that_does_not_answer_is_reported_at_once(closed_port: int) -> None:
    url = f"spark://127.0.0.1:{closed_port}"

    with pytest.raises(SparkUnavailableError) as caught:
        reach(parse_master(url))

    assert caught.value.problem == f"no Spark master answers at {url} (127.0.0.1:{closed_port}: Connection refused)"
    assert "start it, or correct the URL" in caught.value.remedy


def test_one_of_several_masters_is_enough_and_tells_this_machine_s_address(closed_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"spark://127.0.0.1:{closed_port},127.0.0.1:{server.getsockname()[1]}"

        assert reach(parse_master(url)) == "127.0.0.1"


# A start that fails.


def test_no_directory_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))

    with pytest.raises(SparkUnavailableError, match=r"No such file or directory.*set TMPDIR"), session._directory():
        pass


STARTS_AND_FAILS = r"""#!/bin/sh
case "$*" in
*launcher.Main*) printf '\0\n%s\0' "$0" ;;  # the launcher's answer: the command to run
*) printf 'Picked up something\n\tat a.stack.trace\nError: no room for the heap\n' >&2; exit {code} ;;
esac
"""


@pytest.mark.parametrize(("code", "message"), [(1, "with code 1"), (52, "ran out of memory at its start")])
def test_a_jvm_that_ends_at_its_start_is_reported_with_its_last_lines(tmp_path: Path, code: int, message: str) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(STARTS_AND_FAILS.format(code=code), encoding="utf-8")
    program.chmod(0o755)

    with (
        pytest.raises(SparkUnavailableError) as caught,
        session._directory() as directory,
        session._running_jvm({}, session._jvm_variables(home, None), directory),
    ):
        pass

    assert message in caught.value.problem
    assert caught.value.log == ("Error: no room for the heap",)
    assert not directory.exists()


# A session. The fixture's is the one of this process.


def test_the_session_of_the_process_is_used_again(spark: SparkSession) -> None:
    with spark_session() as again:
        assert again.sparkContext is spark.sparkContext

    assert spark.range(3).count() == 3


def test_a_second_master_in_one_process_is_refused(spark: SparkSession) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"already has a Spark session on local\[2,12\]"),
        spark_session("local[1]"),
    ):
        pass


def test_a_task_that_fails_is_tried_again(spark: SparkSession) -> None:
    def fail_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < 3:
            raise RuntimeError("not yet")
        yield from batches

    assert spark.range(0, 2, 1, 1).mapInArrow(fail_first, "id long").count() == 2


def test_a_task_that_always_fails_ends_the_job_with_its_message(spark: SparkSession) -> None:
    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise RuntimeError("never")
        yield from ()

    with pytest.raises(PySparkException, match="RuntimeError: never"):
        spark.range(0, 1, 1, 1).mapInArrow(fail, "id long").count()


def test_workers_find_the_engine_loaded_by_a_daemon_with_one_thread(spark: SparkSession) -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kernel = sys.modules.get("endive.sim.engine.kernel")
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {
                    "compiled": [kernel is not None and len(kernel.advance.signatures) > 0],
                    "threads": [len(list(Path(f"/proc/{os.getppid()}/task").iterdir()))],
                    "python": [sys.executable],
                }
            )

    rows = spark.range(0, 2, 1, 2).mapInArrow(look, "compiled boolean, threads long, python string").collect()

    assert [tuple(row) for row in rows] == [(True, 1, sys.executable)] * 2


def test_forked_workers_may_use_threads(spark: SparkSession, tmp_path: Path) -> None:
    def read_and_write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        for batch in batches:
            path = tmp_path / f"{batch.column(0)[0]}.parquet"
            pq.write_table(pa.table({"x": range(100_000), "y": range(100_000)}), path)
            rows = ds.dataset(path).to_table(use_threads=True).num_rows
            yield pa.RecordBatch.from_pydict({"rows": [rows]})

    rows = spark.range(0, 6, 1, 6).mapInArrow(read_and_write, "rows long").collect()

    assert [row.rows for row in rows] == [100_000] * 6


def test_variables_path_and_signals_are_as_before(spark: SparkSession) -> None:
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert getattr(signal.getsignal(signal.SIGINT), "__module__", "") != "pyspark.core.context"
    assert not [entry for entry in sys.path if "userFiles" in entry]


def test_jobs_have_a_name_for_a_block_and_theirs_of_before_afterwards(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.job.description", "the user's")
    try:
        with named(context, "ours"):
            within = [context.getLocalProperty(key) for key in ("spark.job.description", "callSite.short")]
        after = [context.getLocalProperty(key) for key in ("spark.job.description", "callSite.short")]
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type] # deletes it

    assert within == ["ours", "ours"]
    assert after == ["the user's", None]


def test_the_clock_is_utc(spark: SparkSession) -> None:
    assert spark.sql("select current_timezone()").first() == ("UTC",)


# The end of a session, looked at from outside.


@contextmanager
def waiting(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Give a program whose tasks wait, and the process id of its JVM."""
    command = [sys.executable, "-m", "tests.pipeline.jobs", "wait", str(directory), *arguments]
    variables = os.environ | {"TMPDIR": str(directory)}  # one that is killed leaves its files
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - one system call
    ) as program:
        try:
            until(lambda: list(directory.glob("task-*")) or program.poll() is not None)
            assert program.poll() is None, program.communicate()
            yield program, int((directory / "jvm").read_text(encoding="ascii"))
        finally:
            program.kill()


def hear_interrupts() -> None:
    """Undo what a shell does to a command in the background: it and its children do not hear Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_no_jvm_outlives_a_program_that_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    with waiting(tmp_path) as (program, jvm):
        program.send_signal(number)
        program.communicate(timeout=DEADLINE_S)

        until(lambda: not is_alive(jvm))


@pytest.mark.slow
def test_a_jvm_that_is_killed_ends_in_one_message(tmp_path: Path) -> None:
    with waiting(tmp_path) as (program, jvm):
        os.kill(jvm, signal.SIGKILL)
        output, errors = program.communicate(timeout=DEADLINE_S)

    assert (program.returncode, output) == (1, "")
    assert errors.startswith("Spark's JVM was killed, as Linux does when memory runs out, during the session; ")
