"""The command line: what a user types, reads and finds on disk."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from endive.sim.results.experiment import load_result
from endive.sim.results.runs import span
from tests.surfaces.files import SMALL, CommandLine, only_result, small

# Running.


def test_a_run_shows_its_metrics_and_keeps_its_result(endive: CommandLine) -> None:
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


def test_the_second_run_says_that_the_result_exists(endive: CommandLine) -> None:
    first = endive("run", "small.toml")
    written_ns = only_result(endive.directory).stat().st_mtime_ns

    second = endive("run", "small.toml")

    assert "the result exists" in second.err
    assert second.out == first.out
    assert only_result(endive.directory).stat().st_mtime_ns == written_ns


@pytest.mark.parametrize("option", ["--force", "--again"])
def test_force_runs_again_and_gives_the_same_rows(endive: CommandLine, option: str) -> None:
    endive("run", "small.toml")
    before = load_result(only_result(endive.directory)).table

    outcome = endive("run", "small.toml", option)

    assert "the result exists" not in outcome.err
    after = load_result(only_result(endive.directory)).table
    assert after is not None
    assert after.equals(before)


def test_another_window_is_another_view_of_the_same_result(endive: CommandLine) -> None:
    narrow = endive("run", "small.toml")
    whole = ("--set", "simulation.trim_start_ms=0", "--set", "simulation.trim_end_ms=0")

    wide = endive("run", "small.toml", *whole)

    assert "the result exists" in wide.err
    assert "window 0.25 to 0.75 min" in narrow.out
    assert "window 0 to 1 min" in wide.out


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "words"),
    [
        (15_000, 45_000, "0.25 to 0.75 min"),
        (3.6e6, 1.08e7, "60 to 180 min"),
        (2.16e7, 6.48e7, "6 to 18 h"),
        (14 * 864e5 / 4, 14 * 864e5 * 3 / 4, "3.5 to 10.5 days"),
    ],
)
def test_a_window_is_printed_in_a_suitable_unit(start_ms: float, end_ms: float, words: str) -> None:
    assert span(start_ms, end_ms) == words


def test_json_parses_and_says_what_the_run_was(endive: CommandLine) -> None:
    document = json.loads(endive("run", "small.toml", "--seeds", "1..3", "--json").out)

    assert [run["seed"] for run in document["runs"]] == [1, 2, 3]
    assert {run["cost_model"] for run in document["runs"]} == {"spec"}
    assert document["metrics"]["committed_per_s"]["half_width_95"] > 0
    assert document["figures"] == document["metrics"]  # the name until 0.1.0
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
    assert "compared on seeds 1, 2" in outcome.out


def test_compare_as_json_has_the_metrics_of_both_sides(endive: CommandLine) -> None:
    endive.write("fast.toml", SMALL.replace('"s3"', '"s3x"'))

    outcome = endive("compare", "small.toml", "fast.toml", "--seeds", "1..2", "--set", "catalog.num_tables=3", "--json")

    found = json.loads(outcome.out)
    assert found["seeds"] == [1, 2]
    assert found["a"].startswith("small-")
    rate = found["metrics"]["committed_per_s"]
    assert found["figures"] == found["metrics"]  # the name until 0.1.0
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
    assert "have no seed in common: the first has seed 1, the second seed 2; run both" in outcome.err
    outcome = endive("compare", seeds[0], str(Path(seeds[1]).parent), "--seeds", "2..3")
    assert "the first has none of those asked for, the second seed 2" in outcome.err


def test_compare_runs_a_configuration_with_the_seeds_of_the_result_beside_it(endive: CommandLine) -> None:
    endive("run", "small.toml", "--seeds", "4..5")
    (result,) = map(str, endive.directory.glob("experiments/*"))
    endive.write("fast.toml", SMALL.replace('"s3"', '"s3x"'))

    for sides in ((result, "fast.toml"), ("fast.toml", result)):
        assert json.loads(endive("compare", *sides, "--json").out)["seeds"] == [4, 5]
    assert json.loads(endive("compare", result, "fast.toml", "--seeds", "5..6", "--json").out)["seeds"] == [5]


def test_compare_names_metrics_as_a_run_does_and_only_its_own_options(endive: CommandLine) -> None:
    shown = endive("compare", "small.toml", "small.toml").out
    assert "all p99.9, ms" in shown
    assert "p999" not in shown
    assert "--seed " not in " ".join(endive("compare", "--help").out.split())
    assert "--seed." not in endive("compare", "--help").out


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


def test_a_sweep_file_is_recognised(endive: CommandLine) -> None:
    endive.write("grid.toml", 'base = "small.toml"\n[grid]\n"transaction.retry" = [1, 2]\n')

    outcome = endive("run", "grid.toml")

    assert outcome.code == 2
    assert "this is a sweep file, not a configuration" in outcome.err
    assert "`endive sweep grid.toml`" in outcome.err


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


def test_providers_lists_latencies_and_sources(endive: CommandLine) -> None:
    assert "azurex" in endive("providers").out
    assert "YCSB" in endive("providers", "s3").out


def test_providers_as_json_have_medians_and_sources(endive: CommandLine) -> None:
    found = json.loads(endive("providers", "s3", "--json").out)

    assert list(found) == ["spec", "measured"]
    cas = found["spec"][0]["latencies"]["cas"]
    assert (round(cas["median_ms"]), cas["source"][:2] != "") == (61, True)
    assert {one["provider"] for one in json.loads(endive("providers", "--json").out)["spec"]} >= {"s3", "gcp"}


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


def test_help_begins_with_all_that_there_is(endive: CommandLine) -> None:
    words = " ".join(endive("--help").out.split())
    assert (
        "Predict how many commits per second Iceberg tables sustain, and run a catalog that needs only a bucket."
        in words
    )


def test_the_version_is_shown(endive: CommandLine) -> None:
    assert endive("--version").out.startswith("endive ")


# Imports.


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
