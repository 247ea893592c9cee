"""Configuration: one file in, every validation error out, and a name for the effective values."""

import re
from pathlib import Path

import pytest

from endive.cli.config import values_in_force
from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, load_simulation_config, parse_configuration
from endive.sim.config.test_config import create_test_config
from endive.sim.latency import FixedLatency, SizeBasedLatency
from endive.sim.simulation import Simulation
from tests.surfaces.files import SMALL, small

SPECIFICATION_EXAMPLE = """
[simulation]
duration_ms = 3600000
seed = 42                              # Optional; overridable via seed_override
output_path = "results.parquet"

[experiment]
label = "exp_baseline"                 # Optional; enables directory structure

[storage]
provider = "s3x"                       # s3, s3x, azure, azurex, gcp, instant

[catalog]
num_tables = 1
# type = "cas"                         # Inferred from provider capabilities

[catalog.partitions]
num_partitions = 100                   # Uniform across tables
# per_table = [10, 20, 30]            # Or explicit per-table

[transaction]
retry = 10
runtime.mean = 180000
runtime.sigma = 1.5
inter_arrival.distribution = "exponential"
inter_arrival.scale = 100.0
real_conflict_probability = 0.0
manifest_list_mode = "rewrite"         # "rewrite" or "append" (ML+ mode)

[transaction.operation_types]
fast_append = 0.7
merge_append = 0.2
validated_overwrite = 0.1

[transaction.retry_backoff]
enabled = true
base_ms = 10.0
multiplier = 2.0
max_ms = 5000.0
jitter = 0.1
"""


def errors_of(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        small(*overrides)
    return tuple(raised.value.errors)


# The example of the source document.


def test_the_specifications_example_loads(tmp_path: Path) -> None:
    path = tmp_path / "cfg.toml"
    path.write_text(SPECIFICATION_EXAMPLE, encoding="utf-8")

    config = load_simulation_config(str(path), seed_override=7)

    assert config.seed == 7
    assert config.duration_ms == 3_600_000
    assert config.max_retries == 10
    assert config.backoff_enabled
    assert (config.backoff_base_ms, config.backoff_multiplier, config.backoff_max_ms) == (10.0, 2.0, 5000.0)
    assert type(config.catalog).__name__ == "CASCatalog"
    assert config.storage_provider.name == "s3x"
    assert config.workload.config.partitions_per_table == (100,)


def test_the_example_of_the_source_document_gets_warnings_about_keys_without_effect() -> None:
    settings = parse_configuration(SPECIFICATION_EXAMPLE)

    assert settings.label == "exp_baseline"
    assert settings.warnings == ("catalog.partitions has no effect: it needs transaction.partitions.per_txn",)


# Faults.


def test_all_errors_are_reported_at_once() -> None:
    found = errors_of(
        "catalog.num_table=3",
        "simulation.duration_ms=-1",
        "transaction.cost_model=iceburg",
        "transaction.tables.per_txn=5",
        "storage.provider=s4",
    )

    places = [error.partition(":")[0] for error in found]
    assert sorted(places) == [
        "catalog.num_table",
        "simulation.duration_ms",
        "storage.provider",
        "transaction.cost_model",
        "transaction.tables.per_txn",
    ]


def test_an_error_hides_its_consequences() -> None:
    assert len(errors_of("transaction.inter_arrival=5")) == 1
    assert len(errors_of("storage.provider=5")) == 1
    assert len(errors_of("transaction=5")) == 1


def test_two_ways_to_count_partitions_contradict() -> None:
    both = ("catalog.partitions.num_partitions=3", "catalog.partitions.per_table=[3]")

    assert errors_of(*both) == ("catalog.partitions: num_partitions or per_table, not both",)


def test_partitions_per_table_must_match_the_tables() -> None:
    assert errors_of("catalog.partitions.per_table=[3, 4]") == (
        "catalog.partitions.per_table: 2 entries for num_tables = 1",
    )


def test_an_append_catalog_that_compacts_needs_a_cas(tmp_path: Path) -> None:
    rows = "read = { value = 1 }\nwrite = { value = 1 }\nappend = { value = 1 }\n"
    (tmp_path / "mine.toml").write_text(f"[mine]\n{rows}", encoding="utf-8")
    mine = ("storage.profile_file=mine.toml", "storage.provider=mine", "catalog.type=append")

    with pytest.raises(ConfigurationError, match="mine has no cas, which compaction needs"):
        parse_configuration(SMALL, str(tmp_path / "small.toml"), mine)
    assert parse_configuration(SMALL, str(tmp_path / "small.toml"), [*mine, "catalog.compaction_threshold=0"])


def test_a_special_latency_gives_a_capability() -> None:
    assert small("catalog.type=append", "storage.latency.catalog_append={ value = 5 }")


def test_a_closed_loop_in_which_nothing_takes_time_would_never_end() -> None:
    nothing = (
        "transaction.arrivals=closed",
        "transaction.writers=1",
        "transaction.runtime={ value = 0 }",
        "catalog.latency_ms=0",
        "storage.latency={ read = { value = 0 }, write = { value = 0 } }",
    )

    assert errors_of(*nothing)[0].startswith("transaction.think: more than 10,000,000 transactions")


def test_a_server_without_a_time_for_its_work_takes_that_of_the_store() -> None:
    """256 writers on a shared log commit some hundred times a second, not without limit."""
    text = """
        simulation.duration_ms = 600_000
        storage.provider = "s3"
        catalog.preset = "endive-shared"
        [storage.latency]
        read.value = 0
        write.value = 0
        [transaction]
        arrivals = "closed"
        writers = 256
        runtime.value = 0
        """
    assert parse_configuration(text).values.catalog.service.work is None


def test_errors_of_a_profile_file_come_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[mine]\nread = { median = 5 }\nwrit = { value = 1 }\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(
            SMALL, str(tmp_path / "small.toml"), ["storage.profile_file=bad.toml", "catalog.num_table=1"]
        )

    assert [error.rpartition("bad.toml: ")[2].partition(":")[0] for error in raised.value.errors] == [
        "catalog.num_table",
        "mine.read",
        "mine.writ",
    ]


# What is in force, and from where.


def test_a_profile_beside_the_file_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "[mine]\nread = { value = 5 }\nwrite = { base = 5, per_mib = 1, sigma = 0.1 }\n", encoding="utf-8"
    )
    own = ["storage.profile_file=mine.toml", "storage.provider=mine"]

    settings = parse_configuration(SMALL, str(tmp_path / "small.toml"), own)

    assert settings.profile.latencies["read"] == FixedLatency(5.0)


def test_every_value_in_force_has_an_origin() -> None:
    settings = small("catalog.type=cas", "storage.latency.cas={ value = 3 }", "transaction.cost_model=iceberg")

    origins = {key: origin for key, _, origin in values_in_force(settings)}

    assert origins["transaction.inter_arrival.scale"] == "small.toml"
    assert origins["storage.latency.cas"] == "--set"
    assert origins["transaction.retry"] == "cost model iceberg"
    assert origins["catalog.conflict_granularity"] == "catalog type cas"
    assert origins["simulation.trim_start_ms"] == "a quarter of the run"
    assert origins["storage.decision"] == "profile s3"
    assert all(origins.values())


def test_an_override_that_replaces_a_table_leaves_nothing_of_it() -> None:
    settings = small("transaction.inter_arrival={ median = 5, sigma = 0.1 }")

    assert "transaction.inter_arrival.scale" not in settings.given
    assert settings.given["transaction.inter_arrival.median"] == "--set"


def test_a_latency_given_is_kept_where_manifest_lists_grow() -> None:
    growing = "transaction.manifest_list_growth_bytes=100"

    assert isinstance(small(growing).profile.find("read", "manifest_list"), SizeBasedLatency)
    given = small(growing, "storage.latency.manifest_list_read={ value = 5 }")
    assert given.profile.find("read", "manifest_list") == FixedLatency(5.0)


def test_a_list_that_hardly_grows_is_read_as_one_that_does_not() -> None:
    still, growing = (
        small("storage.provider=s3", f"transaction.manifest_list_growth_bytes={growth}").profile for growth in (0, 1)
    )
    size_bytes = small().values.transaction.manifest_list_bytes
    plain, sized = (profile.find("read", "manifest_list") for profile in (still, growing))
    assert plain is not None
    assert sized is not None
    for u in (0.3, 0.5, 0.99):
        expected = plain.quantile.ticks_at(u)
        assert sized.with_size(size_bytes).quantile.ticks_at(u) == pytest.approx(expected, rel=1e-6)
        assert sized.with_size(10 * size_bytes).quantile.ticks_at(u) > expected


def test_the_seed_can_be_given_when_building() -> None:
    assert small().build().seed == 1
    assert small().build(seed=9).seed == 9


# The name of an experiment.

SAME = ("simulation.seed=9", "experiment.label=other", "simulation.output_path=a.parquet", "simulation.trim_end_ms=1")
OTHER = (
    "simulation.duration_ms=61_000",
    "storage.provider=s3x",
    "storage.profiles=spec",
    "storage.latency.read={ value = 3 }",
    "catalog.num_tables=2",
    "catalog.latency_ms=2",
    "transaction.retry=9",
    "transaction.cost_model=iceberg",
    "transaction.inter_arrival.scale=501",
    "transaction.operation_types.merge_append=0.1",
    "transaction.manifest_file_bytes=1",
    "transaction.retry_backoff.enabled=true",
)


@pytest.mark.parametrize("override", SAME)
def test_the_hash_does_not_depend_on(override: str) -> None:
    assert small(override).experiment_hash() == small().experiment_hash()


@pytest.mark.parametrize("override", OTHER)
def test_the_hash_depends_on(override: str) -> None:
    assert small(override).experiment_hash() != small().experiment_hash()


def test_saying_the_default_does_not_change_the_hash() -> None:
    assert small("transaction.retry=10").experiment_hash() == small().experiment_hash()


def test_the_file_name_is_the_label_unless_given() -> None:
    assert small().label == "small"
    assert small("experiment.label=x").label == "x"


# Options without effect.


def warned(settings: Settings) -> set[str]:
    return {warning.split(" ")[0] for warning in settings.warnings}


def test_storage_keys_have_no_effect_without_a_catalog_on_storage() -> None:
    given = ("storage.decision=half", "storage.contention=false", "storage.failure_latency=false")

    assert warned(small(*given)) == {"storage.decision", "storage.contention", "storage.failure_latency"}
    assert warned(small(*given, "catalog.type=cas")) == set()


def test_a_latency_that_no_request_reads() -> None:
    given = ("storage.latency.cas={ value = 3 }", "storage.latency.manifest_file_read={ value = 3 }")

    assert warned(small(*given)) == {"storage.latency.cas", "storage.latency.manifest_file_read"}
    merging = "transaction.operation_types.merge_append=1"
    assert warned(small(*given, "catalog.type=cas", merging)) == set()


def test_a_latency_that_a_more_special_one_hides() -> None:
    general = "storage.latency.cas={ value = 3 }"
    special = "storage.latency.catalog_cas={ value = 3 }"

    assert warned(small(general, special, "catalog.type=cas")) == {"storage.latency.cas"}


def test_a_size_where_latency_does_not_depend_on_it() -> None:
    fixed = "storage.latency.write={ value = 3 }"

    assert warned(small("transaction.manifest_file_bytes=1")) == set()
    assert warned(small("transaction.manifest_file_bytes=1", fixed)) == {"transaction.manifest_file_bytes"}


def test_retry_keys_have_no_effect_without_retries() -> None:
    given = ("transaction.retry=0", "transaction.retry_backoff.enabled=true", "transaction.retry_timeout_ms=5")

    assert warned(small(*given)) == {"transaction.retry_backoff", "transaction.retry_timeout_ms"}


def test_a_write_fraction_has_an_effect_where_it_leaves_a_table_unwritten() -> None:
    tables = ("catalog.num_tables=4", "transaction.tables.write_fraction=0.5")

    assert warned(small(*tables)) == {"transaction.tables.write_fraction"}
    assert warned(small(*tables, "transaction.tables.per_txn=2")) == set()


def test_a_value_without_effect_is_named_with_its_value() -> None:
    settings = small("transaction.isolation=serializable")

    assert settings.warnings[0].startswith('transaction.isolation = "serializable" has no effect')


# Hints.


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("simulation.duration_ms='1s'", "times are numbers of milliseconds: 1000"),
        ("transaction.runtime={ value = '5 min' }", "times are numbers of milliseconds: 300000"),
        ("storage.provider=S3", "did you mean 's3'?"),
        ("storage.T_APPEND={ mean = 50, stddev = 5 }", "did you mean 'storage.latency.append'?"),
        ("storage.T_LOG_ENTRY_READ={ mean = 5 }", "did you mean 'catalog.log_entry_read_ms'?"),
        ("catalog.mode='append'", "did you mean 'catalog.type'?"),
        ("transaction.T_CAS=50", "did you mean 'storage.latency.cas'?"),
        ("T_APPEND=50", "did you mean 'storage.latency.append'?"),
        ("transaction.runtime.fast_append={ median = 5 }", "is a class: [workload.NAME] with its keys"),
        ("transaction.retry_backoff.rewrite={ base_ms = 5 }", "is a class: [workload.NAME] with its keys"),
        (
            "transaction.operation_types.fast_append={ runtime = 5 }",
            "transaction.operation_types.fast_append: expected a number",
        ),
    ],
)
def test_a_common_mistake_gets_a_hint(override: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(hint)):
        small(override)


def test_a_small_configuration_for_tests_runs() -> None:
    statistics = Simulation(create_test_config({"catalog.num_tables": 2}, seed=3)).run()

    assert statistics.committed > 50
