"""`endive sweep` as a user meets it: sizes, messages, interruptions, and resuming."""

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from endive.cli.sweep import duration
from endive.pipeline.plan import Plan
from endive.pipeline.sweep_file import load_group
from endive.spark.session import DAEMON
from tests.pipeline.sweeps import expected_rows, rows_of, sweep_text
from tests.surfaces.conftest import endive  # noqa: F401 - a fixture
from tests.surfaces.files import CommandLine, start

LONG = sweep_text("[1, 2]", "[60, 70, 80, 90]").replace("300_000", "21_600_000")
"""24 runs in as many bins, about a second each."""
ENDS_S = 300
"""How long a JVM may take to end; seconds on an idle machine."""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_worker(pid: int) -> bool:
    """Whether a process is one in which Spark runs Python tasks."""
    try:
        return DAEMON.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def send(kind: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(pid, kind)


def descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, and those have."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == pid:
            children.append(int(path.parent.name))
    return [*children, *(one for child in children for one in descendants(child))]


def test_a_sweep_is_sized_before_it_starts(endive: CommandLine) -> None:  # noqa: F811
    endive.write("group.toml", sweep_text())
    outcome = endive("sweep", "group.toml", "--plan")
    assert outcome.code == 0
    assert outcome.out.startswith("6 experiments × 3 seeds = 18 runs; about 20 s")
    assert not (endive.directory / "sweeps").exists()


def test_several_files_are_one_sweep_and_shared_runs_are_reported(endive: CommandLine) -> None:  # noqa: F811
    endive.write("one.toml", sweep_text())
    endive.write("two.toml", sweep_text(tables="[3, 5]"))
    outcome = endive("sweep", "one.toml", "two.toml", "--plan")
    assert "12 experiments × 3 seeds = 36 runs, 9 of them shared between groups and run once" in outcome.out


@pytest.mark.parametrize(
    ("seconds", "text"), [(20.4, "20 s"), (600.0, "10 min"), (7523 * 60.0, "130 h"), (2.5 * 3600, "2.5 h")]
)
def test_durations_have_a_suitable_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


WRONG = {
    ("sweep", "missing.toml"): "missing.toml: 1 error\n  - cannot be read: No such file or directory",
    ("sweep", "invalid.toml"): "catalog.num_tables: expected at least 1, but found -1",
    ("sweep", "group.toml", "--master", "spork://x"): "not a master URL of Spark",
    ("sweep", "group.toml", "--master", "spark://127.0.0.1:9"): "spark://127.0.0.1:9",
    ("sweep", "group.toml", "--set", "catalog.num_tables=3"): "the sweep varies catalog.num_tables",
    ("sweep", "group.toml", "--set", "catalog.num_table=3"): "did you mean 'num_tables'?",
    ("sweep", "group.toml", "--out", "group.toml/out"): "group.toml/out",
    ("sweep", "group.toml", "--catalog", "htp://x", "--plan"): "unknown scheme 'htp'",
    ("sweep", "group.toml", "--into", "htp://x", "--plan"): "unknown scheme 'htp'",
    ("report", "nowhere"): "nowhere",
    ("report", "."): "holds no sweep",
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.items())
def test_wrong_input_is_one_message(
    endive: CommandLine,  # noqa: F811
    arguments: tuple[str, ...],
    message: str,
) -> None:
    endive.write("group.toml", sweep_text())
    endive.write("invalid.toml", sweep_text(tables="[1, -1]"))

    outcome = endive(*arguments)

    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(endive.directory.glob("**/measures"))


@pytest.mark.slow
def test_an_interrupted_sweep_continues_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    out, plan = tmp_path / "out", Plan((load_group(str(tmp_path / "long.toml")),))
    kept: set[str] = set()
    for kind in (signal.SIGINT, signal.SIGKILL):  # the second while it continues after the first
        code, said = interrupted(tmp_path, kind, kept)
        assert code == (130 if kind == signal.SIGINT else -9)
        assert kind == signal.SIGKILL or "repeat the command to continue" in said
        assert "Traceback" not in said
        parts = {path.name for path in out.glob("runs/part-*")}
        assert kept < parts
        kept = parts
        assert 0 < len(rows_of(out)) < len(plan.runs)
        assert not (out / "measures").exists()

    logs = {"enabled": "true", "dir": tmp_path.as_uri(), "rolling.enabled": "false", "compress": "false"}
    asked = [word for key, value in logs.items() for word in ("--conf", f"spark.eventLog.{key}={value}")]
    second = start(tmp_path, "sweep", "long.toml", "--out", "out", *asked)
    _, said = second.communicate(timeout=600)

    assert second.returncode == 0, said
    assert "runs are done already" in said
    assert kept <= {path.name for path in out.glob("runs/part-*")}
    rows = [{key: value for key, value in row.items() if value is not None} for row in rows_of(out)]
    assert rows == [{key: value for key, value in row.items() if value is not None} for row in expected_rows(plan)]
    measured = pq.read_table(out / "measures" / "runs.parquet")
    assert measured.num_rows == len(plan.runs)
    assert (out / "report.html").stat().st_size > 100_000
    jobs, stages = names_in(next(tmp_path.glob("local-*")))
    assert jobs == stages
    assert all(re.fullmatch(r"sweep out: \d+ runs in \d+ bins", name) for name in jobs)


def names_in(log: Path) -> tuple[set[str], set[str]]:
    """The names of jobs and of stages in an event log."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    jobs = [event["Properties"] for event in events if event["Event"] == "SparkListenerJobStart"]
    stages = [event["Stage Info"] for event in events if event["Event"] == "SparkListenerStageSubmitted"]
    return {job["spark.job.description"] for job in jobs}, {stage["Stage Name"] for stage in stages}


def interrupted(directory: Path, kind: signal.Signals, kept: set[str]) -> tuple[int, str]:
    """Start a sweep, stop it when it has written a file besides `kept`, and see that none of its processes is left."""
    sweep = start(directory, "sweep", "long.toml", "--out", "out")
    workers: list[int] = []
    try:
        while {path.name for path in directory.glob("out/runs/part-*")} == kept and sweep.poll() is None:
            time.sleep(0.05)
        processes = descendants(sweep.pid)
        workers = [pid for pid in processes if is_worker(pid)]
        send(signal.SIGSTOP, workers)  # however slow the machine: the sweep cannot end before the signal takes effect
        os.kill(sweep.pid, kind)
        _, said = sweep.communicate(timeout=ENDS_S)
        await_end([pid for pid in processes if pid not in workers])
    finally:
        sweep.kill()
        send(signal.SIGCONT, workers)
    await_end(workers)
    return sweep.returncode, said


def await_end(pids: list[int]) -> None:
    deadline = time.monotonic() + ENDS_S
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in pids if is_running(pid)]
