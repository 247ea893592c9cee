"""The command line: what a user types, reads and finds on disk."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from endive.sim.config import load_configuration
from endive.sim.experiment import Experiment, load_result
from tests.surfaces.files import SMALL, CommandLine, small

LAUNCH = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from endive.cli import main; sys.argv[0] = 'endive'; main()"
)
"""A test runner may have been started with Ctrl-C ignored; the command must not be."""


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LAUNCH, *arguments]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def only_result(directory: Path) -> Path:
    (path,) = directory.glob("experiments/*/*/results.parquet")
    return path


# Running.


def test_a_run_shows_its_figures_and_keeps_its_result(endive: CommandLine) -> None:
    outcome = endive("run", "small.toml")

    assert outcome.code == 0
    for heading in (
        "offered",
        "committed",
        "success",
        "p50",
        "p95",
        "p99",
        "fast_append",
        "retries per transaction",
        "catalog read",
        "per-attempt I/O",
        "conflict I/O",
        "backoff",
        "manifest list reads",
        "still in flight",
        "cost model spec",
    ):
        assert heading in outcome.out
    result = only_result(endive.directory)
    assert (result.parent.parent / "cfg.toml").read_text(encoding="utf-8") == SMALL
    assert (result.parent.parent / "version.txt").read_text(encoding="utf-8").startswith("endive ")


def test_the_second_run_says_that_the_result_is_there(endive: CommandLine) -> None:
    first = endive("run", "small.toml")
    written_ns = only_result(endive.directory).stat().st_mtime_ns

    second = endive("run", "small.toml")

    assert "the result is there" in second.err
    assert second.out == first.out
    assert only_result(endive.directory).stat().st_mtime_ns == written_ns


def test_again_runs_again_and_gives_the_same_rows(endive: CommandLine) -> None:
    endive("run", "small.toml")
    before = load_result(only_result(endive.directory)).table

    outcome = endive("run", "small.toml", "--again")

    assert "the result is there" not in outcome.err
    assert load_result(only_result(endive.directory)).table.equals(before)


def test_another_window_is_another_view_of_the_same_result(endive: CommandLine) -> None:
    narrow = endive("run", "small.toml")
    whole = ("--set", "simulation.trim_start_ms=0", "--set", "simulation.trim_end_ms=0")

    wide = endive("run", "small.toml", *whole)

    assert "the result is there" in wide.err
    assert "window 0.25 to 0.75 min" in narrow.out
    assert "window 0 to 1 min" in wide.out


def test_json_parses_and_says_what_the_run_was(endive: CommandLine) -> None:
    document = json.loads(endive("run", "small.toml", "--seeds", "1..3", "--json").out)

    assert [run["seed"] for run in document["runs"]] == [1, 2, 3]
    assert {run["cost_model"] for run in document["runs"]} == {"spec"}
    assert document["figures"]["committed_per_s"]["half_width_95"] > 0
    assert document["runs"][0]["counters"]["cas_success"] > 0
    assert document["warnings"] == []


def test_several_seeds_carry_an_interval(endive: CommandLine) -> None:
    outcome = endive("run", "small.toml", "--seeds", "1..3")

    assert "3 seeds" in outcome.out
    assert "±" in outcome.out
    assert "e+" not in outcome.out


def test_nothing_that_commits_is_a_table_of_dashes(endive: CommandLine) -> None:
    outcome = endive("run", "small.toml", "--set", "transaction.runtime.value=1e7")

    assert outcome.code == 0
    assert json.loads(endive("run", "small.toml", "--set", "transaction.runtime.value=1e7", "--json").out)
    assert [line.split()[-1] for line in outcome.out.splitlines() if line.startswith("success")] == ["-", "-"]


# Comparing.


def test_compare_shows_two_configurations_side_by_side(endive: CommandLine) -> None:
    endive.write("fast.toml", SMALL.replace('"s3"', '"s3x"'))

    outcome = endive("compare", "small.toml", "fast.toml", "--seeds", "1..2")

    assert outcome.code == 0
    assert "difference" in outcome.out
    assert "small-" in outcome.out
    assert "fast-" in outcome.out
    assert "seeds in common: 1, 2" in outcome.out


def test_compare_as_json_has_the_figures_of_both_sides(endive: CommandLine) -> None:
    endive.write("fast.toml", SMALL.replace('"s3"', '"s3x"'))

    outcome = endive("compare", "small.toml", "fast.toml", "--seeds", "1..2", "--set", "catalog.num_tables=3", "--json")

    found = json.loads(outcome.out)
    assert found["seeds"] == [1, 2]
    assert found["a"].startswith("small-")
    rate = found["figures"]["committed_per_s"]
    assert rate["difference"]["mean"] == pytest.approx(rate["b"]["mean"] - rate["a"]["mean"])
    assert rate["ratio"] == pytest.approx(rate["b"]["mean"] / rate["a"]["mean"])
    assert small("catalog.num_tables=3").experiment_hash() in found["a"]


def test_compare_changes_configurations_only(endive: CommandLine) -> None:
    endive("run", "small.toml")
    place = str(only_result(endive.directory))

    outcome = endive("compare", place, place, "--set", "catalog.num_tables=3")

    assert outcome.code == 2
    assert "only a configuration can be changed" in outcome.err


def test_compare_takes_a_file_and_a_directory(endive: CommandLine) -> None:
    endive("run", "small.toml")
    result = only_result(endive.directory)

    assert endive("compare", str(result), str(result.parent.parent)).code == 0


def test_compare_without_a_common_seed_says_so(endive: CommandLine) -> None:
    endive("run", "small.toml", "--seeds", "1..2")
    seeds = [str(path.parent) for path in sorted(endive.directory.glob("experiments/*/*/results.parquet"))]

    outcome = endive("compare", *seeds)

    assert outcome.code == 2
    assert "no seed in common" in outcome.err


def test_compare_checks_both_sides_before_it_runs_one(endive: CommandLine) -> None:
    outcome = endive("compare", "small.toml", "nothing")

    assert outcome.code == 2
    assert "nothing: there is no such file or directory" in outcome.err
    assert not (endive.directory / "experiments").exists()


def test_compare_with_the_root_names_its_experiments(endive: CommandLine) -> None:
    endive("run", "small.toml")

    outcome = endive("compare", "experiments", "experiments")

    assert outcome.code == 2
    assert "name one of experiments/small-" in outcome.err


# Looking.


def test_config_check_says_fine(endive: CommandLine) -> None:
    outcome = endive("config", "check", "small.toml")

    assert outcome.code == 0
    assert "fine" in outcome.out
    assert outcome.err == ""


def test_config_show_says_where_each_value_came_from(endive: CommandLine) -> None:
    shown = json.loads(endive("config", "show", "small.toml", "--set", "catalog.num_tables=3", "--json").out)

    assert shown["simulation.duration_ms"] == {"value": 60_000.0, "from": "small.toml"}
    assert shown["catalog.num_tables"] == {"value": 3, "from": "--set"}
    assert shown["transaction.retry"] == {"value": 10, "from": "cost model spec"}
    assert shown["transaction.max_parallel"] == {"value": 1, "from": "default"}
    assert shown["storage.latency.read"]["from"].startswith("profile s3: ")


def test_config_show_is_a_table_of_whole_keys(endive: CommandLine) -> None:
    outcome = endive("config", "show", "small.toml")

    assert "transaction.manifests_per_concurrent_commit" in outcome.out


def test_config_keys_lists_every_key_with_its_meaning(endive: CommandLine) -> None:
    outcome = endive("config", "keys")

    assert "catalog.conflict_granularity" in outcome.out
    assert "catalog | table | partition" in outcome.out


def test_config_keys_of_a_section(endive: CommandLine) -> None:
    outcome = endive("config", "keys", "transaction.retry_backoff")

    assert "transaction.retry_backoff.jitter" in outcome.out
    assert "catalog.type" not in outcome.out


def test_config_keys_of_a_distribution(endive: CommandLine) -> None:
    assert "distribution.sigma" in endive("config", "keys", "distribution").out


def test_config_keys_names_the_key_that_was_meant(endive: CommandLine) -> None:
    outcome = endive("config", "keys", "retry")

    assert outcome.code == 2
    assert "did you mean 'transaction.retry'?" in outcome.err


def test_providers_lists_figures_and_sources(endive: CommandLine) -> None:
    assert "azurex" in endive("providers").out
    assert "YCSB" in endive("providers", "s3").out


def test_a_profile_of_ones_own_is_listed_and_used(endive: CommandLine) -> None:
    endive.write("mine.toml", "[mine]\nread = { value = 5 }\nwrite = { base = 5, per_mib = 1, sigma = 0.1 }\n")

    assert "always 5" in endive("providers", "mine", "--profile-file", "mine.toml").out
    used = ("--set", "storage.profile_file=mine.toml", "--set", "storage.provider=mine")
    assert endive("run", "small.toml", *used).code == 0


@pytest.mark.parametrize(
    "command", [(), ("run",), ("sweep",), ("report",), ("compare",), ("providers",), ("demo",), ("config", "keys")]
)
def test_every_command_has_help(endive: CommandLine, command: tuple[str, ...]) -> None:
    outcome = endive(*command, "--help")

    assert outcome.code == 0
    assert "Usage" in outcome.out


def test_the_version_is_shown(endive: CommandLine) -> None:
    assert endive("--version").out.startswith("endive ")


# Wrong input: one message that names place and remedy, exit code 2, nothing written.

WRONG_VALUES = {
    "catalog.num_table=3": "catalog.num_table: unknown key; did you mean 'num_tables'?",
    "transaction.retries=3": "did you mean 'transaction.retry'?",
    "transaction.num_tables=3": "it belongs at 'catalog.num_tables'",
    "transaction.inter_arrival.scale=-4": "transaction.inter_arrival.scale: expected more than 0, but found -4",
    "storage.provider=s3y": "storage.provider: no profile 's3y'; did you mean",
    "catalog.type=cass": "'cass' is not one of 'cas', 'append' or 'instant'; did you mean 'cas'?",
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
    assert outcome.err.count("\n") == 2  # "1 fault", and the fault
    assert not (endive.directory / "experiments").exists()


WRONG_ARGUMENTS = {
    ("run", "missing.toml"): "missing.toml: 1 fault\n  - cannot be read: No such file or directory",
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
    ("demo", "--out", "small.toml/demo"): "small.toml/demo/runs: cannot be made",
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
    assert "--again" in outcome.err
    assert endive("run", "small.toml", "--again").code == 0


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
        command = [sys.executable, "-c", LAUNCH, "run", "small.toml"]
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
    assert load_result(only_result(endive.directory)).table.num_rows > 0
    assert [path.name for path in only_result(endive.directory).parent.iterdir()] == ["results.parquet"]


def test_figures_only_prints_the_same_figures_and_writes_nothing(endive: CommandLine) -> None:
    only = json.loads(endive("run", "small.toml", "--figures-only", "--json").out)
    assert not (endive.directory / "experiments").exists()
    kept = json.loads(endive("run", "small.toml", "--json").out)

    assert only["runs"][0]["figures"] == kept["runs"][0]["figures"]
    assert only["runs"][0]["counters"] == kept["runs"][0]["counters"]
    assert only["runs"][0]["path"] is None


def test_figures_only_is_not_for_the_reference_engine(endive: CommandLine) -> None:
    outcome = endive("run", "small.toml", "--figures-only", "--engine", "reference")

    assert outcome.code == 2
    assert "keeps its rows" in outcome.err


def test_commands_do_not_import_what_only_others_need() -> None:
    heavy = "{'pyiceberg', 'pyspark'} & set(sys.modules)"
    code = f"import sys, endive.cli.app; print({heavy})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_a_group_that_is_imported_later_knows_its_commands(endive: CommandLine) -> None:
    assert "init" in endive("catalog", "--help").out
    misspelt = endive("catalog", "tabels")
    assert misspelt.code == 2
    assert "Did you mean 'tables'?" in misspelt.err
