"""The command line when something is wrong: input, results, interruptions."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from endive.sim.config.configuration import load_configuration
from endive.sim.results.experiment import Experiment, load_result
from tests.surfaces.files import COMMAND, SMALL, CommandLine, only_result, start

# Wrong input: one message that names place and remedy, exit code 2, nothing written.

WRONG_VALUES = {
    "catalog.num_table=3": "catalog.num_table: unknown key; did you mean 'num_tables'?",
    "transaction.retries=3": "did you mean 'transaction.retry'?",
    "transaction.num_tables=3": "it belongs at 'catalog.num_tables'",
    "transaction.inter_arrival.scale=-4": "transaction.inter_arrival.scale: expected more than 0, but found -4",
    "storage.provider=s3y": "storage.provider: no profile 's3y'; did you mean",
    "catalog.type=cass": "'cass' is not one of 'cas', 'append', 'instant' or 'service'; did you mean 'cas'?",
    "catalog.type=append": "s3 has no append; choose another, or give storage.latency.append",
    "experiment.label=a/b": "experiment.label: expected letters, digits, dots",
    "simulation.output_path=a/b.parquet": "expected a plain file name ending in .parquet",
    "simulation.trim_start_ms=50_000": "leaves nothing of duration_ms; trim less",
    "simulation.duration_ms=nan": "expected a finite number",
    "simulation.duration_ms=inf": "expected a finite number",
    "simulation.duration_ms=1e300": "simulation.duration_ms: expected at most",
    "simulation.duration_ms=1e-7": "simulation.duration_ms: expected at least 1",
    "simulation.seed=99999999999999999999": "simulation.seed: expected at most",
    "transaction.runtime={ median = 5, sigma = 1000 }": "transaction.runtime.sigma: expected at most 5",
    "transaction.inter_arrival={ value = 0 }": "more than 10,000,000 transactions",
    "transaction.inter_arrival={ scale = 1e-9 }": "more than 10,000,000 transactions",
    "transaction.inter_arrival=5": "expected a distribution, such as { median = 27, sigma = 0.62 }",
    "transaction.inter_arrival={ mean = 5 }": "say which distribution",
    "transaction=5": "expected a table; `endive config keys transaction` lists its keys",
    "catalog.num_tables=100000000000": "catalog.num_tables: expected at most",
    "catalog.num_tables=true": "expected a whole number, but found True",
    'catalog.num_tables="3"': "expected a whole number, but found '3'",
    "transaction.retry=-1": "transaction.retry: expected at least 0",
    "transaction.operation_types.fast_append=0": "all weights are 0",
    "transaction.manifest_list_mode=append": "s3 has no append, which ML+ needs",
    "transaction.arrivals=closed": "transaction.writers: required for closed arrivals",
    "storage.profile_file=nothing.toml": "nothing.toml: cannot be read: No such file",
    "storage.profile_file=.": "cannot be read: Is a directory",
    "simulation=": "expected a table",
    "nonsense": "expected key=value",
    "=1": "expected key=value",
}


@pytest.mark.parametrize(("override", "message"), WRONG_VALUES.items())
def test_a_wrong_value_is_one_message_and_nothing_runs(endive: CommandLine, override: str, message: str) -> None:
    outcome = endive("run", "small.toml", "--set", override)

    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 2  # "1 error", and the error itself
    assert not (endive.directory / "experiments").exists()


WRONG_ARGUMENTS = {
    ("run", "missing.toml"): "missing.toml: 1 error\n  - cannot be read: No such file or directory",
    ("run", "."): "cannot be read: Is a directory",
    ("run", sys.executable): "cannot be read: not a text file",
    ("run", "empty.toml"): "storage.provider: required; one of s3, s3x",
    ("run", "broken.toml"): "not valid TOML",
    ("run", "small.toml", "--seeds", "nonsense"): "expected A..B, such as 1..5",
    ("run", "small.toml", "--seeds", "5..1"): "expected A at most B",
    ("run", "small.toml", "--seed", "1", "--seeds", "1..2"): "given together with --seed",
    ("run", "small.toml", "--seed", "-1"): "--seed",
    ("run", "small.toml", "--seed", "x"): "--seed",
    ("run", "small.toml", "--out", "small.toml"): "small.toml/small-",
    ("compare", "small.toml", "small.toml", "--seeds", "x"): "expected A..B",
    ("providers", "s4"): "no profile 's4'",
    ("providers", "--profile-file", sys.executable): "cannot be read: not a text file",
    ("providers", "--profile-file", "bad.toml"): "mine.writ: unknown key; did you mean 'write'?",
    ("runn",): "No such command",
}


@pytest.mark.parametrize(("arguments", "message"), WRONG_ARGUMENTS.items())
def test_wrong_arguments_end_with_code_2(endive: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    endive.write("empty.toml", "")
    endive.write("broken.toml", "[simulation\n")
    endive.write("bad.toml", "[mine]\nread = { value = 1 }\nwrit = { value = 1 }\n")

    outcome = endive(*arguments)

    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_a_directory_below_a_file_is_named_with_the_problem_and_the_remedy(endive: CommandLine) -> None:
    outcome = endive("demo", "--out", "small.toml/demo")

    assert outcome.code == 2
    file = re.escape(str(endive.directory / "small.toml" / "demo" / "experiments-"))
    assert re.search(rf"{file}\w+\.parquet: cannot be written \(Not a directory\); choose another --out", outcome.err)
    assert "Traceback" not in outcome.err


def test_an_option_without_effect_is_a_warning(endive: CommandLine) -> None:
    outcome = endive("run", "small.toml", "--set", "transaction.writers=3")

    assert outcome.code == 0
    assert 'warning: transaction.writers has no effect: it needs arrivals = "closed"' in outcome.err


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(endive: CommandLine) -> None:
    endive.write("windows.toml", "\ufeff" + SMALL.replace("\n", "\r\n"))

    assert endive("config", "check", "windows.toml").code == 0


# Results that are not what they should be.


@pytest.mark.parametrize("size", [0, 4, 3000])
def test_a_truncated_result_is_named_with_the_remedy(endive: CommandLine, size: int) -> None:
    endive("run", "small.toml")
    path = only_result(endive.directory)
    path.write_bytes(path.read_bytes()[:size])

    outcome = endive("run", "small.toml")

    assert outcome.code == 2
    assert "results.parquet: cannot be read as Parquet" in outcome.err
    assert "--force" in outcome.err
    assert endive("run", "small.toml", "--force").code == 0


@pytest.mark.parametrize("metadata", [None, b"no json", b"{}", b"[1]", b'{"window_ms": [2, 1], "counters": {}}'])
def test_a_foreign_parquet_file_is_refused(endive: CommandLine, metadata: bytes | None) -> None:
    endive("run", "small.toml")
    table = pq.read_table(only_result(endive.directory))
    changed = table.replace_schema_metadata({b"endive": metadata} if metadata else None)
    pq.write_table(changed, endive.directory / "foreign.parquet")

    outcome = endive("compare", "small.toml", "foreign.parquet")

    assert outcome.code == 2
    assert "foreign.parquet: is not a result of `endive run`" in outcome.err


def test_a_result_with_other_types_is_refused(endive: CommandLine) -> None:
    endive("run", "small.toml")
    table = pq.read_table(only_result(endive.directory))
    texts = pa.array(["x"] * table.num_rows)
    pq.write_table(table.set_column(1, "t_submit", texts), endive.directory / "foreign.parquet")

    assert "is not a result" in endive("compare", "small.toml", "foreign.parquet").err


def test_output_that_cannot_be_written_is_one_message(endive: CommandLine) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("only Linux has a device that is always full")
    endive("run", "small.toml")
    with full.open("w") as sink:
        command = [*COMMAND, "run", "small.toml"]
        done = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


# Interruptions. The run would take long; the directory is described before it begins.

LONG = ("--set", "simulation.duration_ms=3e9")


def wait_until_running(directory: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if list(directory.glob("experiments/*/version.txt")):
            return
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    raise AssertionError("the run did not begin")


def assert_nothing_looks_finished(directory: Path) -> None:
    experiment = Experiment(load_configuration("small.toml", LONG[1::2]), Path("experiments"))
    assert experiment.directory.is_dir()
    assert experiment.load(1) is None
    assert not list(directory.glob("**/*.parquet"))


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_ctrl_c_ends_with_130_and_leaves_nothing_finished(endive: CommandLine, engine: str) -> None:
    process = start(endive.directory, "run", "small.toml", *LONG, "--engine", engine)
    wait_until_running(endive.directory, process)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "interrupted" in message
    assert "Traceback" not in message
    assert_nothing_looks_finished(endive.directory)


def test_a_killed_run_leaves_nothing_that_looks_finished(endive: CommandLine) -> None:
    process = start(endive.directory, "run", "small.toml", *LONG, "--engine", "reference")
    wait_until_running(endive.directory, process)
    process.kill()
    process.communicate(timeout=60)

    assert_nothing_looks_finished(endive.directory)


def test_two_processes_may_run_the_same_seed(endive: CommandLine) -> None:
    both = [start(endive.directory, "run", "small.toml") for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]

    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    table = load_result(only_result(endive.directory)).table
    assert table is not None
    assert table.num_rows > 0
    assert [path.name for path in only_result(endive.directory).parent.iterdir()] == ["results.parquet"]


@pytest.mark.parametrize("option", ["--metrics-only", "--figures-only"])
def test_metrics_only_prints_the_same_metrics_and_writes_nothing(endive: CommandLine, option: str) -> None:
    only = json.loads(endive("run", "small.toml", option, "--json").out)
    assert not (endive.directory / "experiments").exists()
    kept = json.loads(endive("run", "small.toml", "--json").out)

    assert only["runs"][0]["figures"] == kept["runs"][0]["figures"]
    assert only["runs"][0]["counters"] == kept["runs"][0]["counters"]
    assert only["runs"][0]["path"] is None


def test_metrics_only_is_not_for_the_reference_engine(endive: CommandLine) -> None:
    outcome = endive("run", "small.toml", "--metrics-only", "--engine", "reference")

    assert outcome.code == 2
    assert "keeps its rows" in outcome.err


# Errors are attributed to the file or to the option.


def test_an_error_of_an_option_is_not_attributed_to_the_file(endive: CommandLine) -> None:
    endive.write("sweep.toml", 'base = "small.toml"\nseeds = "1..2"\n[grid]\n"transaction.retry" = [1, 2]\n')
    wrong = ("--set", "catalog.num_table=3", "--set", "transaction.retry_backoff.jitter=-1")

    for words in (("run", "small.toml"), ("config", "check", "small.toml"), ("compare", "small.toml", "small.toml")):
        assert endive(*words, *wrong).err.startswith("error: --set: 2 errors\n  - catalog.num_table: unknown key")
    swept = endive("sweep", "sweep.toml", "--plan", *wrong).err
    assert swept.startswith("error: --set: 2 errors\n  - catalog.num_table: unknown key")
    assert "(with" not in swept  # every member has them


def test_an_error_that_an_option_reveals_is_attributed_to_the_option(endive: CommandLine) -> None:
    closed = endive("run", "small.toml", "--set", "transaction.arrivals=closed").err
    assert closed.startswith("error: --set: 1 error\n  - transaction.writers: required for closed arrivals")
    closed = endive(
        "capacity", "small.toml", "--set", "transaction.arrivals=closed", "--set", "transaction.writers=2"
    ).err
    assert closed.startswith("error: --set: 1 error\n  - transaction.arrivals: capacity is an offered load")


def test_a_message_says_whether_the_file_or_an_option_is_wrong(endive: CommandLine) -> None:
    endive.write("bad.toml", SMALL.replace("runtime", "runtme"))

    error = endive("run", "bad.toml", "--set", "catalog.num_table=3").err

    assert error.startswith("error: bad.toml and --set: 2 errors\n")
    assert "  - transaction.runtme: unknown key; did you mean 'runtime'?\n" in error
    assert "  - --set: catalog.num_table: unknown key; did you mean 'num_tables'?\n" in error
    assert endive("run", "bad.toml", "--set", "catalog.num_tables=3").err.startswith("error: bad.toml: 1 error\n")


def test_all_unreadable_overrides_are_reported_at_once(endive: CommandLine) -> None:
    error = endive("run", "small.toml", "--set", "nonsense", "--set", "simulation.seed.x=1", "--set", "=1").err

    assert error.startswith("error: --set: 3 errors\n  - 'nonsense': expected key=value")
    assert "simulation.seed.x: seed is a value, not a table" in error


def test_errors_of_values_to_vary_are_reported_at_once(endive: CommandLine) -> None:
    error = endive(
        "capacity", "small.toml", "--vary", "catalog.num_tables=1,-1,-2", "--vary", "catalog.typ=cas,append"
    ).err

    assert error.startswith("error: --vary: 3 errors\n")
    assert "catalog.typ: unknown key; did you mean 'type'?" in error
    assert "but found -1" in error
    assert "but found -2" in error
