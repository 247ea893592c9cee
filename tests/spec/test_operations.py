"""Iceberg's operations: what they validate, when they merge manifests, and rewrites with partial progress."""

from itertools import pairwise
from typing import Any

import pytest

from endive.errors import ConfigurationError
from endive.sim.config.configuration import parse_configuration
from endive.sim.cost import COST_MODELS
from endive.sim.engines import simulate
from endive.sim.operations import OPERATION_TYPES, OPERATIONS
from endive.sim.results.statistics import RunResult
from endive.sim.transaction_types import TRANSACTION_TYPES

BASE = """
simulation = { duration_ms = 120_000, trim_start_ms = 0, trim_end_ms = 0 }
storage.provider = "instant"
catalog = { type = "instant", latency_ms = 1 }
[storage.latency]
read.value = 10
write.value = 10
[transaction]
cost_model = "iceberg"
runtime.value = 100
retry_backoff.enabled = false
"""


def job(name: str, operation: str, more: str, first_ms: int = 0) -> str:
    """Return a class of one writer that runs `operation` once."""
    return (
        f"[workload.{name}]\narrivals = 'triggered'\ninterval_ms = 1_000_000\nwriters = 1\nstagger_ms = {first_ms}\n"
        f"operation_types.{operation} = 1\n{more}\n"
    )


def every(name: str, operation: str, interval_ms: int) -> str:
    """Return a class of one writer that runs `operation` again and again."""
    return (
        f"[workload.{name}]\narrivals = 'triggered'\ninterval_ms = {interval_ms}\nwriters = 1\n"
        f"operation_types.{operation} = 1\n"
    )


def run(text: str) -> RunResult:
    """Run on both engines, which must agree, and return the result."""
    settings = parse_configuration(BASE + text)
    reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
    assert reference.table.equals(compiled.table)
    assert reference.counters == compiled.counters
    return compiled


def rows_of(result: RunResult, name: str) -> list[dict[str, Any]]:
    return [row for row in result.table.to_pylist() if row["class"] == name]


def test_every_operation_has_a_transaction_type_and_a_row_in_each_cost_model() -> None:
    assert list(TRANSACTION_TYPES) == list(OPERATION_TYPES)
    for model in COST_MODELS.values():
        assert list(model.operations) == list(OPERATION_TYPES)


# Validation.


def test_a_rewrite_validates_no_appends() -> None:
    result = run(job("compaction", "rewrite", "runtime.value = 50_000") + every("streams", "fast_append", 5_000))
    (rewrite,) = rows_of(result, "compaction")
    assert rewrite["status"] == "committed"
    assert result.counters["historical_ml_reads"] == 0
    assert result.counters["real_conflicts"] == 0


def test_a_rewrite_reads_the_snapshots_of_row_deltas_since_its_start_at_every_attempt() -> None:
    result = run(job("compaction", "rewrite", "runtime.value = 52_000") + every("upserts", "row_delta", 5_000))
    (rewrite,) = rows_of(result, "compaction")
    assert rewrite["status"] == "committed"
    assert rewrite["n_retries"] == 0
    assert result.counters["historical_ml_reads"] == 11  # row deltas at 0, 5, … 50 s
    assert rewrite["manifest_file_reads"] == 1 + 11


def test_a_rewrite_conflicts_with_another_rewrite_that_no_validation_reads() -> None:
    certain = "real_conflict_probability = 1.0\n"
    result = run(
        job("one", "rewrite", f"runtime.value = 50_000\n{certain}") + job("two", "rewrite", "runtime.value = 20_000")
    )
    (one,), (two,) = rows_of(result, "one"), rows_of(result, "two")
    assert (one["status"], one["abort_reason"]) == ("aborted", "validation_exception")
    assert two["status"] == "committed"
    assert result.counters["historical_ml_reads"] == 0


@pytest.mark.parametrize(
    ("operation", "isolation", "reads"),
    [
        ("overwrite", "snapshot", 0),
        ("overwrite", "serializable", 11),
        ("row_delta", "snapshot", 0),
        ("row_delta", "serializable", 11),
        ("replace_partitions", "snapshot", 0),
        ("replace_partitions", "serializable", 11),
        ("rewrite", "serializable", 0),
        ("append", "serializable", 0),
    ],
)
def test_appends_are_validated_if_isolation_is_serializable(operation: str, isolation: str, reads: int) -> None:
    slow = job("slow", operation, f"runtime.value = 52_000\nisolation = '{isolation}'")
    assert run(slow + every("streams", "fast_append", 5_000)).counters["historical_ml_reads"] == reads


def test_an_operation_conflicts_only_with_the_kinds_that_it_names() -> None:
    assert OPERATIONS["rewrite"].conflicts(serializable=True) == {"overwrite", "replace"}
    assert OPERATIONS["replace_partitions"].conflicts(serializable=False) == set()
    assert OPERATIONS["row_delta"].reads(serializable=False) == {"overwrite", "replace"}
    assert [kind for kind in OPERATION_TYPES if OPERATIONS[kind].is_validated] == [
        "validated_overwrite", "overwrite", "row_delta", "replace_partitions", "rewrite",
    ]  # fmt: skip


# Manifests.


def test_appends_merge_manifests_once_there_are_enough_and_then_begin_anew() -> None:
    result = run("manifest_min_count_to_merge = 10\n" + every("streams", "append", 1_000))
    reads = [row["manifest_file_reads"] for row in rows_of(result, "streams") if row["status"] == "committed"]
    # The table begins with one manifest: the ninth append finds nine and merges them with its own.
    assert reads[:9] == [0] * 8 + [10]
    assert reads[9:18] == [0] * 8 + [10]
    writes = [row["manifest_file_writes"] for row in rows_of(result, "streams")]
    assert writes[:9] == [1] * 8 + [2]


def test_an_append_that_loses_the_race_to_another_merges_again() -> None:
    text = "manifest_min_count_to_merge = 10\ntable_manifests = 40\n"
    result = run(text + job("one", "append", "runtime.value = 100") + job("two", "append", "runtime.value = 130"))
    (one,), (two,) = rows_of(result, "one"), rows_of(result, "two")
    assert one["manifest_file_reads"] == 41
    assert two["n_retries"] == 1
    assert two["manifest_file_reads"] == 41  # the winner has left one manifest: nothing to merge in the retry


def test_fast_appends_never_merge() -> None:
    result = run("table_manifests = 500\n" + every("streams", "fast_append", 1_000))
    assert result.counters["manifest_file_reads"] == 0


# Partial progress.


def test_a_rewrite_with_partial_progress_commits_its_parts_one_after_the_other() -> None:
    result = run(job("compaction", "rewrite", "runtime.value = 40_000\npartial_progress_commits = 4"))
    rows = rows_of(result, "compaction")
    assert [row["t_runtime"] for row in rows] == [10_000.0] * 4
    assert [row["status"] for row in rows] == ["committed"] * 4
    for before, after in pairwise(rows):
        assert after["t_submit"] == before["t_commit"]


def test_the_parts_of_a_rewrite_validate_since_the_start_of_the_job() -> None:
    text = job("compaction", "rewrite", "runtime.value = 40_000\npartial_progress_commits = 2")
    result = run(text + every("upserts", "row_delta", 7_000))
    first, second = rows_of(result, "compaction")
    assert first["manifest_file_reads"] - 1 == 3  # row deltas at 0, 7 and 14 s
    assert second["manifest_file_reads"] - 1 == 6  # and at 21, 28 and 35 s: the first three once more


def test_a_part_that_fails_does_not_end_the_job() -> None:
    certain = "real_conflict_probability = 1.0\npartial_progress_commits = 3\n"
    result = run(
        job("compaction", "rewrite", f"runtime.value = 30_000\n{certain}")
        + job("upsert", "row_delta", "runtime.value = 12_000")
    )
    assert [row["status"] for row in rows_of(result, "compaction")] == ["committed", "aborted", "aborted"]


def test_jobs_of_a_trigger_begin_at_its_times_however_many_parts_they_have() -> None:
    text = every("compaction", "rewrite", 30_000) + "partial_progress_commits = 3\nruntime.value = 6_000\n"
    rows = rows_of(run(text), "compaction")
    assert [row["t_submit"] for row in rows[::3]] == [0.0, 30_000.0, 60_000.0, 90_000.0]
    assert {row["writer"] for row in rows} == {0}


def test_partial_progress_is_for_rewrites_only() -> None:
    with pytest.raises(ConfigurationError, match="only rewrites have it"):
        run(job("mixed", "append", "partial_progress_commits = 3"))
