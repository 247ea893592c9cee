"""Tidiness: what is declared is used, what is public is documented, what is shipped works."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import get_args, get_origin

import pyarrow as pa
import pytest

from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, load_configuration, parse_configuration
from endive.sim.config.reference import Key, keys
from endive.sim.config.schema import Configuration
from endive.sim.engines import simulate

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "endive").rglob("*.py"))
LINES_MAX = 500
LONG_FILES = {
    "endive/sim/engine/kernel.py": "compiled: a function that is called from another file is compiled with it",
}
"""Files that may be longer, with the reason."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    return name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


# Code.


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_file_is_long_without_a_reason(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= LINES_MAX or name_of(path) in LONG_FILES


def public_methods(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    for owner in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_"):
            methods = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
            yield from ((f"{owner.name}.{node.name}", node) for node in methods)


def inherited(class_and_method: str, module: str) -> bool:
    """Whether a method overrides one, which is where its documentation is."""
    owner, _, method = class_and_method.partition(".")
    kind = getattr(importlib.import_module(module), owner)
    return any(method in vars(base) for base in (*kind.__mro__[1:], *filled_by(kind)))


def filled_by(kind: type) -> list[type]:
    """The interfaces of ours that a class has every method of, without saying so."""
    modules = [importlib.import_module(module_of(path)) for path in SOURCES if path.name == "api.py"]
    modules += [importlib.import_module(name) for name in ("endive.kv.sst.reading", "endive.objects.records")]
    interfaces = {
        value for module in modules for value in vars(module).values() if getattr(value, "_is_protocol", False)
    }
    return [each for each in interfaces if all(hasattr(kind, name) for name, _ in methods_of(each))]


def methods_of(kind: type) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"]


def test_every_public_method_is_documented_where_it_is_declared() -> None:
    """Modules, classes and functions are ruff's to check; it cannot tell an override from a declaration."""
    bare = [
        f"{module_of(path)}.{name}"
        for path in SOURCES
        for name, node in public_methods(path)
        if not ast.get_docstring(node) and not inherited(name, module_of(path))
    ]
    assert bare == []


# Configurations.


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=name_of)
def test_configurations_that_come_with_endive_have_no_errors_and_no_warnings(path: Path) -> None:
    assert load_configuration(str(path)).warnings == ()


def test_every_key_says_what_it_takes_and_means() -> None:
    for key in (*keys(), *keys("distribution")):
        assert key.takes
        assert key.meaning, key.name


def test_every_section_of_the_schema_is_listed() -> None:
    assert {key.name.partition(".")[0] for key in keys()} == set(Configuration.model_fields)


# Every key is read by something. A short run with another value must differ in some context; and wherever a warning
# says that the value has no effect, it must not differ.

BASE = """
[simulation]
duration_ms = 20_000
[storage]
provider = "s3x"
profiles = "measured"
[transaction]
inter_arrival = { scale = 250 }
runtime = { median = 400, sigma = 0.5 }
"""
MANY_TABLES = (
    "catalog.num_tables=6",
    "catalog.partitions.num_partitions=4",
    "transaction.tables.per_txn=3",
    "transaction.tables.selector=zipf",
    "transaction.tables.write_fraction=0.5",
    "transaction.partitions.per_txn=2",
    "transaction.partitions.selector=zipf",
    "transaction.partitions.write_fraction=0.5",
)
CONFLICTS = ("transaction.real_conflict_probability=0.5", "transaction.real_conflict=merge")
CONTEXTS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "instant, no retries": ("catalog.type=instant", "transaction.retry=0"),
    "S3, which has contention": ("storage.provider=s3", *CONFLICTS),
    "a limited store": ("storage.provider=gcp", "storage.profiles=measured", "transaction.inter_arrival.scale=150"),
    "a server": (
        *MANY_TABLES,
        "catalog.type=service",
        "catalog.service.workers=1",
        "catalog.service.work={ value = 150 }",
        "catalog.service.poll_ms=20",
        "catalog.service.poll_multiplier=2",
        "catalog.service.poll_max_ms=200",
        "catalog.service.wait_max_ms=400",
        "catalog.service.requests_per_s=8",
        "catalog.service.client=aws-cpp",
        "catalog.conflict_granularity=catalog",
        "catalog.table_groups=2",
    ),
    "many tables, iceberg": (*MANY_TABLES, *CONFLICTS, "transaction.cost_model=iceberg", "catalog.table_groups=2"),
    "many tables, append": (
        *MANY_TABLES,
        "catalog.type=append",
        "catalog.compaction_max_entries=5",
        "transaction.manifest_list_mode=append",
        "transaction.manifest_list_seal_threshold=500",
        "catalog.table_metadata_inlined=false",
        "transaction.isolation=serializable",
    ),
    "append wherever the log ends": (
        "catalog.type=append",
        "catalog.log_append=tail",
        "storage.latency.tail_append={ value = 20 }",
        "transaction.metadata_root_read=true",
    ),
    "metadata that grows and is kept up": (
        "catalog.table_metadata_inlined=false",
        "transaction.snapshot_bytes=100000",
        "transaction.manifest_list_growth_bytes=100000",
        "transaction.operation_types={ fast_append = 8, expire_snapshots = 1, rewrite_manifests = 1 }",
    ),
    "manifest lists that grow": (
        "catalog.partitions.per_table=[8]",
        "transaction.partitions.per_txn=2",
        "transaction.manifest_list_growth_bytes=100000",
    ),
    "partitions that commit on their own": (
        "catalog.partitions.per_table=[8]",
        "catalog.conflict_granularity=partition",
        "transaction.partitions.per_txn=2",
    ),
    "append, sealed by bytes": ("catalog.type=append", "catalog.compaction_threshold=1000"),
    "pyiceberg, closed": (
        "transaction.cost_model=pyiceberg",
        "transaction.arrivals=closed",
        "transaction.writers=4",
        "transaction.table_manifests=3",
        "transaction.retry_backoff.base_ms=20",
    ),
    "a rate that varies": (
        "transaction.rate.factors=[0.5, 2.0]",
        "transaction.rate.period_ms=8000",
        "transaction.rate.burst_factor=4.0",
        "transaction.rate.burst_every_ms=5000",
        "transaction.rate.burst_ms=1000",
    ),
    "triggered": ("transaction.arrivals=triggered", "transaction.writers=4", "transaction.interval_ms=1000"),
    "writers with tables of their own": (
        "catalog.num_tables=6",
        "transaction.arrivals=closed",
        "transaction.writers=8",
        "transaction.tables.only=[0, 2, 3]",
        "transaction.tables.shares=[5, 2, 1]",
        "transaction.tables.choice=writer",
    ),
    "a lock for each table": (
        "catalog.num_tables=6",
        "catalog.type=service",
        "catalog.service.workers=1",
        "catalog.service.work={ value = 150 }",
        "catalog.service.per_table=true",
        "catalog.table_groups=6",
    ),
    "a log with batches": (
        "catalog.num_tables=6",
        "catalog.type=service",
        "catalog.service.batches=1",
        "catalog.service.work={ value = 150 }",
    ),
    "appends that merge manifests": (
        "transaction.operation_types={ append = 1.0 }",
        "transaction.manifest_min_count_to_merge=10",
    ),
    "rewrites in parts": (
        "transaction.operation_types={ rewrite = 1.0 }",
        "transaction.partial_progress_commits=2",
    ),
}
UNSEEN = {
    "simulation.output_path": "where results go; test_experiment.py",
    "simulation.trim_start_ms": "the window of the figures; test_experiment.py",
    "simulation.trim_end_ms": "the window of the figures; test_experiment.py",
    "experiment.label": "the directory's name; test_config.py",
    "storage.profile_file": "needs a file; test_config.py",
    "storage.prefix_limits": "needs more requests than a short run makes; spec/test_prefix_limits.py",
    "storage.prefix": "needs more requests than a short run makes; spec/test_prefix_limits.py",
    "workload.NAME": "a table, not a value; spec/test_classes.py",
}
"""Keys that have no other value to try, or that results do not depend on, and what tests them."""
VALUES = {
    "storage.provider": ("s3", "azurex"),
    "catalog.partitions.per_table": ("[3]", "[3, 4, 5, 4, 4, 4]"),
    "catalog.log_entry_size": ("300",),
    "catalog.compaction_threshold": ("400",),
    "transaction.retry_timeout_ms": ("100",),
    "transaction.table_manifests": ("7",),
    "transaction.append_attempts": ("1",),
    "transaction.runtime_fixed_ms": ("50",),
    "storage.client": ("aws-cpp",),
    "catalog.preset": ("rest",),
    "catalog.service.client": ("boto3",),
    "catalog.service.poll_multiplier": ("3",),
    "transaction.rate.factors": ("[3.0, 1.0]",),
    "transaction.rate.period_ms": ("6000",),
    "transaction.rate.burst_every_ms": ("4000",),
    "transaction.rate.burst_ms": ("2000",),
    "transaction.interval_ms": ("700",),
    "transaction.manifest_min_count_to_merge": ("0", "5"),
    "transaction.tables.only": ("[0, 1, 4]",),
    "transaction.tables.shares": ("[1, 2, 5]", "[8, 4, 2, 1, 1, 1]"),
    "transaction.tables.per_txn": ("2",),
    "transaction.tables.write_fraction": ("1.0",),
    "transaction.partitions.write_fraction": ("1.0",),
    "transaction.manifest_list_seal_threshold": ("300",),
    "transaction.retry_backoff.max_ms": ("150",),
    "transaction.real_conflict_probability": ("0.9",),
}
"""Where neither the other choices nor a little more than the default would do."""


def other_values(key: Key) -> tuple[str, ...]:
    """Return values to try in the place of the default."""
    if key.name in VALUES:
        return VALUES[key.name]
    if " | " in key.takes:
        return tuple(key.takes.split(" | "))
    if key.takes == "distribution":
        return ("{ value = 33 }",)
    if key.takes.startswith("whole number"):
        return (str(int(key.default or 1) + 2), "40000") if "bytes" in key.name else (str(int(key.default or 1) + 2),)
    return (f"{float(key.default or 10) * 0.5 + 0.01:g}",)


@cache
def outcome(overrides: tuple[str, ...]) -> tuple[pa.Table, dict[str, int]]:
    settings = parse_configuration(BASE, overrides=overrides)
    result = simulate(settings, settings.values.simulation.seed)
    return result.table, dict(result.counters)


def settings_or_none(overrides: tuple[str, ...]) -> Settings | None:
    try:
        return parse_configuration(BASE, overrides=overrides)
    except ConfigurationError:
        return None


def same_as(key: Key, settings: Settings) -> str | None:
    """The other value that the key's value is the same as, if a warning says so."""
    start = f'{key.name} = "partition" is the same as "table"'
    return "table" if any(warning.startswith(start) for warning in settings.warnings) else None


def is_warned_of(key: Key, settings: Settings) -> bool:
    names = (key.name, key.name.rpartition(".")[0])
    return any(warning.startswith(f"{name} ") for warning in settings.warnings for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in keys() if key.name not in UNSEEN], ids=lambda key: key.name)
def test_every_key_has_an_effect_or_a_warning(key: Key) -> None:
    seen = False
    for context, value in product(CONTEXTS.values(), other_values(key)):
        without = tuple(override for override in context if not override.startswith(f"{key.name}="))
        changed = (*without, f"{key.name}={value}")
        settings = settings_or_none(changed)
        if settings is None:
            continue
        if other := same_as(key, settings):
            assert outcome(changed) == outcome((*without, f"{key.name}={other}")), (context, value, settings.warnings)
        elif is_warned_of(key, settings):
            assert outcome(changed) == outcome(without), (context, value, settings.warnings)
        elif not seen:
            seen = outcome(changed) != outcome(context)
    assert seen


def test_the_types_tried_are_the_types_there_are() -> None:
    known = ("whole number", "number", "distribution", "text", "list of", "true | false")

    tried = [key for key in keys() if key.name not in UNSEEN]
    assert [key.name for key in tried if " | " not in key.takes and not key.takes.startswith(known)] == []
    assert get_origin(Configuration.model_fields["storage"].annotation) is None
    assert get_args(Configuration.model_fields["storage"].annotation) == ()
