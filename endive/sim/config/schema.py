"""The configuration file's schema: every key, its type, its range, its default and what it means.

`None` as a default means that another key decides; `defaults` says which. Every key here is read by some code. Upper
limits are far beyond sensible values: they keep a typing error from running for ever. `endive config keys` prints this
schema.
"""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from endive.sim.catalog import APPENDS_MAX
from endive.sim.config.catalogs import ServiceSection, known_preset
from endive.sim.config.distributions import DistributionSection, NotNegative, Positive
from endive.sim.config.profiles import Decision, known_client
from endive.sim.outcome import DEFAULT_CLASS

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Whole = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Bytes = Annotated[int, Field(ge=0, le=10**15, strict=True)]
Fraction = Annotated[float, Field(ge=0, le=1, strict=True)]
Weight = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)]
Flag = Annotated[bool, Field(strict=True)]

SEED_MAX = 2**63 - 1
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Section(BaseModel):
    """A TOML table. Unknown keys are validation errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SimulationSection(Section):
    """Duration, seed and window of a run."""

    duration_ms: Annotated[Positive, Field(ge=1)] = Field(3_600_000.0, description="simulated time")
    seed: Annotated[int, Field(ge=0, le=SEED_MAX, strict=True)] = Field(
        0, description="seed of all random streams; `--seed` overrides it"
    )
    output_path: str = Field("results.parquet", description="file name of the results, within the seed's directory")
    trim_start_ms: NotNegative | None = Field(
        None, description="warm-up left out of the metrics; by default a quarter of the run"
    )
    trim_end_ms: NotNegative | None = Field(
        None, description="cool-down left out of the metrics; by default a quarter of the run"
    )

    @field_validator("output_path")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if PurePath(value).name != value or not value.endswith(".parquet"):
            raise ValueError("expected a plain file name ending in .parquet; choose the directory with --out")
        return value


class ExperimentSection(Section):
    """The name of the experiment."""

    label: str | None = Field(None, description="first part of the directory's name; by default the file's name")

    @field_validator("label")
    @classmethod
    def _plain_label(cls, value: str | None) -> str | None:
        if value is not None and not LABEL.fullmatch(value):
            raise ValueError("expected letters, digits, dots, dashes and underscores, a letter or digit first")
        return value


def _latency(description: str) -> DistributionSection | None:
    row: DistributionSection | None = Field(None, description=description)
    return row


class LatencySection(Section):
    """Latencies that replace the profile's, by operation, or by kind of object and operation; the special one wins."""

    read: DistributionSection | None = _latency("of a GET, of any object")
    write: DistributionSection | None = _latency("of a PUT, of any object")
    cas: DistributionSection | None = _latency("of a conditional PUT that succeeds")
    cas_failure: DistributionSection | None = _latency("of a conditional PUT that is refused")
    append: DistributionSection | None = _latency("of an append that lands")
    append_failure: DistributionSection | None = _latency("of an append that is refused")
    tail_append: DistributionSection | None = _latency("of an append wherever the object ends")
    catalog_read: DistributionSection | None = _latency("reading the catalog (cas, append)")
    catalog_cas: DistributionSection | None = _latency("swapping the catalog (cas), refused or not")
    catalog_append: DistributionSection | None = _latency("appending to the catalog's log (append), refused or not")
    compaction_cas: DistributionSection | None = _latency("swapping the checkpoint of a sealed log (append)")
    metadata_root_read: DistributionSection | None = _latency(
        "reading a metadata root (transaction.metadata_root_read)"
    )
    table_metadata_read: DistributionSection | None = _latency("reading table metadata that is not inlined")
    table_metadata_write: DistributionSection | None = _latency("writing table metadata that is not inlined")
    manifest_list_read: DistributionSection | None = _latency("reading a manifest list, the missed ones included")
    manifest_list_write: DistributionSection | None = _latency("writing a manifest list")
    manifest_list_append: DistributionSection | None = _latency("appending to a manifest list (ML+), refused or not")
    manifest_file_read: DistributionSection | None = _latency("reading a manifest file")
    manifest_file_write: DistributionSection | None = _latency("writing a manifest file")
    head_read: DistributionSection | None = _latency("asking for an object's existence (pyiceberg)")


class StorageSection(Section):
    """The object store."""

    provider: str = Field("", description="a profile's name; required; `endive providers` lists them")
    profiles: Literal["spec", "measured"] = Field(
        "spec", description="profile set: YCSB latencies of June 2025, or later measurements"
    )
    profile_file: str | None = Field(
        None, description="a TOML file with profiles of your own, relative to this file's directory"
    )
    decision: Decision | None = Field(
        None,
        description="point of its round trip at which a conditional write is decided: half, end or a share of it; by "
        "default the profile's",
    )
    failure_latency: Flag = Field(
        True, description="refused writes have the profile's own latency; false: that of successful ones"
    )
    contention: Flag = Field(True, description="writes to one object slow each other down, as in the profile")
    limits: Flag = Field(True, description="updates of one object per second are limited, as in the profile")
    prefix_limits: Flag = Field(
        False, description="requests to one prefix per second are limited, as in the profile; conditional ones are not"
    )
    prefix: Literal["table", "bucket"] = Field(
        "table", description="prefix_limits: each table has a prefix of its own, or all share one"
    )
    client: str | None = Field(
        None, description="SDK that repeats throttled requests; by default the profile's; `endive providers` lists them"
    )
    latency: LatencySection = Field(LatencySection(), description="latencies that replace the profile's")

    @field_validator("client")
    @classmethod
    def _known_client(cls, value: str | None) -> str | None:
        return None if value is None else known_client(value)


class PartitionTopology(Section):
    """How many partitions the tables have."""

    num_partitions: Count | None = Field(None, description="partitions of every table; by default 1")
    per_table: tuple[Count, ...] | None = Field(None, description="or table by table, such as [10, 20, 30]")


class CatalogSection(Section):
    """The catalog that commits go to."""

    preset: str | None = Field(
        None,
        description="a kind of catalog, which sets the defaults of this section; `endive providers` lists them",
    )
    type: Literal["cas", "append", "instant", "service"] | None = Field(
        None,
        description="one object that is swapped, a log that is appended to, a fixed latency, or a server; by default "
        "cas if the provider has it, else append",
    )
    num_tables: Count = Field(1, description="tables in the catalog")
    latency_ms: NotNegative = Field(1.0, description="of an instant catalog's read and commit")
    conflict_granularity: Literal["catalog", "table", "partition"] | None = Field(
        None, description="what a commit must find unchanged; by default the catalog, for append the table"
    )
    table_groups: Count | None = Field(
        None, description="groups of tables, each with a pointer that is swapped on its own; by default 1"
    )
    table_metadata_inlined: Flag | None = Field(
        None,
        description="table metadata is part of the catalog and costs no requests; by default the cost model's",
    )
    compaction_threshold: Bytes = Field(16_000_000, description="bytes after which an append log is sealed; 0: never")
    compaction_max_entries: Whole = Field(0, description="entries after which an append log is sealed; 0: never")
    log_append: Literal["offset", "tail"] = Field(
        "offset",
        description="appends to the log name an offset and are refused if it has moved, or land wherever the log ends",
    )
    log_entry_size: Annotated[Bytes, Field(ge=1)] = Field(100, description="bytes of an intention in an append log")
    log_entry_read_ms: NotNegative = Field(0.0, description="added to a read for each entry since the checkpoint")
    partitions: PartitionTopology = Field(PartitionTopology(), description="how many partitions the tables have")
    service: ServiceSection = Field(ServiceSection(), description='the server of a catalog of type "service"')

    @property
    def append_request(self) -> Literal["append", "tail_append"]:
        """The request that appends to the log of an append catalog."""
        return "tail_append" if self.log_append == "tail" else "append"

    @property
    def commit_request(self) -> Literal["cas", "append", "tail_append"]:
        """The conditional request that a commit to a catalog on the store makes."""
        return self.append_request if self.type == "append" else "cas"

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str | None) -> str | None:
        return None if value is None else known_preset(value)


class Selection(Section):
    """Which tables, or which partitions of a table, a transaction touches."""

    per_txn: Count | None = Field(None, description="how many a transaction touches")
    selector: Literal["uniform", "zipf"] = Field("uniform", description="all equally likely, or the first ones more")
    alpha: Annotated[Positive, Field(le=20)] = Field(1.5, description="exponent of the Zipf distribution")
    write_fraction: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        1.0, description="share of them that is written; the others are only read"
    )


class TableSelection(Selection):
    """Which tables a transaction touches."""

    selector: Literal["uniform", "zipf", "shares"] | None = Field(  # type: ignore[assignment]
        None,
        description="all equally likely, the first ones more, or by `shares`; by default uniform, or as shares say",
    )
    only: tuple[Whole, ...] | None = Field(
        None, description="numbers of the tables, from 0, such as [0, 3]; by default all of the catalog"
    )
    shares: tuple[Weight, ...] | None = Field(
        None, description="relative frequency of each table, such as [8, 4, 1]; of `only`, or of all tables"
    )
    choice: Literal["transaction", "writer"] | None = Field(
        None,
        description="tables are chosen for each transaction, or once for each writer, in proportion; by default for "
        "each writer if arrivals are triggered",
    )


class RateSection(Section):
    """A rate of open arrivals that varies: over a period such as a day, and in bursts."""

    factors: tuple[Weight, ...] | None = Field(
        None, description="factors of the rate in equal parts of the period, such as 24 for the hours of a day"
    )
    period_ms: Positive = Field(86_400_000.0, description="length of the period; by default a day")
    burst_factor: Weight = Field(1.0, description="factor of the rate during a burst")
    burst_every_ms: Positive | None = Field(None, description="time from the beginning of one burst to the next")
    burst_ms: Positive | None = Field(None, description="length of a burst; the first begins with the run")


class OperationTypes(Section):
    """Relative frequency of the operation types."""

    fast_append: Weight = Field(0.0, description="adds files, validates nothing, has no real conflicts")
    merge_append: Weight = Field(
        0.0, description="adds files and merges manifests: a retry merges again (simplified; `append` is Iceberg's)"
    )
    validated_overwrite: Weight = Field(
        0.0, description="replaces data: a retry validates all missed snapshots (simplified; `overwrite` is Iceberg's)"
    )
    append: Weight = Field(0.0, description="Iceberg's `newAppend`: merges manifests once there are enough of them")
    overwrite: Weight = Field(0.0, description="Iceberg's `newOverwrite`: replaces files, validates overwrites")
    row_delta: Weight = Field(
        0.0, description="Iceberg's `newRowDelta`: adds rows and deletes, validates overwrites and rewrites"
    )
    replace_partitions: Weight = Field(
        0.0, description="Iceberg's `newReplacePartitions`: validates only if serializable"
    )
    rewrite: Weight = Field(0.0, description="Iceberg's `newRewrite` (compaction): validates overwrites, not appends")
    expire_snapshots: Weight = Field(
        0.0, description="removes snapshots from the table metadata, down to `snapshots_kept`"
    )
    rewrite_manifests: Weight = Field(0.0, description="merges all manifests of a table into one")

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(sum(weight for _, weight in self))


class RetryBackoff(Section):
    """Waits between retries. Defaults are the cost model's."""

    enabled: Flag | None = Field(None, description="wait before a retry; by default as in the cost model")
    base_ms: NotNegative | None = Field(None, description="the first wait; by default the cost model's, else 10")
    multiplier: Annotated[Positive, Field(ge=1, le=1000)] = Field(2.0, description="factor from one wait to the next")
    max_ms: NotNegative | None = Field(None, description="the longest wait; by default the cost model's, else 5000")
    jitter: Fraction = Field(0.1, description="random share by which a wait is longer, at most")
    before_read: Flag | None = Field(
        None,
        description="wait before the catalog is read again, as libraries do, not after resolving the conflict",
    )


class TransactionSection(Section):
    """The transactions: arrivals, operations, commits and retries."""

    cost_model: Literal["spec", "iceberg", "pyiceberg"] = Field(
        "spec", description="requests of an attempt: the reference model's, those of Iceberg (Java) or of PyIceberg"
    )
    retry: Whole | None = Field(
        None, description="retries after the first attempt; by default 10 (spec) or 4 (iceberg, pyiceberg)"
    )
    retry_timeout_ms: Positive | None = Field(
        None, description="no retry starts later than this after the first attempt; by default the cost model's"
    )
    append_attempts: Annotated[Count, Field(le=10_000)] = Field(
        APPENDS_MAX,
        description="appends of an attempt to an append catalog's log, or of an entry to a manifest list (ML+): a "
        "refused one is sent again at once, until retry_timeout_ms; then the attempt has failed",
    )
    runtime_fixed_ms: NotNegative = Field(0.0, description="added to every runtime: a minimum, and `runtime` on top")
    runtime: DistributionSection = Field(
        DistributionSection(mean=180_000.0, sigma=1.5), description="work between reading the catalog and committing"
    )
    arrivals: Literal["open", "closed", "triggered"] = Field(
        "open",
        description="transactions arrive at a rate of their own, writers commit one after another, or each writer "
        "begins a transaction at fixed intervals",
    )
    inter_arrival: DistributionSection | None = Field(None, description="open: time between transactions; required")
    rate: RateSection = Field(RateSection(), description="open: a rate that varies over the day, and bursts")
    writers: Count | None = Field(
        None,
        description="closed, triggered: number of writers, one transaction each; required if closed, by default one "
        "for each table if triggered",
    )
    interval_ms: Positive | None = Field(
        None,
        description="triggered: time from one transaction of a writer to its next, which waits for the one before it; "
        "required",
    )
    stagger_ms: NotNegative | None = Field(
        None,
        description="closed, triggered: time over which the writers' first transactions are spread; by default the "
        "interval, or the mean of think and runtime together",
    )
    think: DistributionSection = Field(
        DistributionSection(value=0.0), description="closed: a writer's pause before its next transaction"
    )
    operation_types: OperationTypes = Field(
        OperationTypes(fast_append=0.7, merge_append=0.2, validated_overwrite=0.1),
        description="relative frequency of the operation types",
    )
    tables: TableSelection = Field(TableSelection(per_txn=1), description="which tables a transaction touches")
    partitions: Selection = Field(
        Selection(), description="which partitions of each; without per_txn, partitions are not tracked"
    )
    isolation: Literal["snapshot", "serializable"] = Field(
        "snapshot", description="serializable: tables and partitions that were only read must not have changed either"
    )
    conflict_detector: Literal["probabilistic", "partition_overlap"] = Field(
        "probabilistic", description="overlaps that are real conflicts: a random share, or all"
    )
    real_conflict_probability: Fraction = Field(0.0, description="share of overlaps that are real conflicts")
    real_conflict: Literal["abort", "merge", "restart"] = Field("abort", description="effect of a real conflict")
    conflicting_manifests: DistributionSection = Field(
        DistributionSection(value=1.0), description="manifest files that merging a real conflict reads and writes"
    )
    count_behind: Literal["catalog", "table", "partition"] | None = Field(
        None,
        description="missed commits that a retry pays for: of the catalog, its table or its partition; by default "
        "the cost model's",
    )
    manifests_per_concurrent_commit: Annotated[NotNegative, Field(le=10_000)] = Field(
        1.5, description="manifest files that a merge append merges for each missed commit"
    )
    table_manifests: Annotated[Whole, Field(le=100_000)] = Field(
        1, description="manifests of a table at the beginning, and those that PyIceberg reads"
    )
    manifest_min_count_to_merge: Annotated[Whole, Field(le=100_000)] = Field(
        100, description="manifests of a table from which on Iceberg's operations merge them; 0: never"
    )
    partial_progress_commits: Annotated[Count, Field(le=1_000)] = Field(
        1, description="rewrite: commits that the work of a job is divided into; each may fail alone"
    )
    metadata_root_read: Flag = Field(
        False, description="resolving a conflict begins with reading the metadata root of each written table"
    )
    manifest_reuse: Flag | None = Field(
        None, description="a retry uses the first attempt's manifest file again; by default as in the cost model"
    )
    max_parallel: Count = Field(1, description="manifest lists and files read or written at the same time")
    manifest_list_mode: Literal["rewrite", "append"] = Field(
        "rewrite", description="manifest lists are rewritten, or appended to (ML+)"
    )
    manifest_list_entry_size: Annotated[Bytes, Field(ge=1)] = Field(50, description="ML+: bytes of an entry")
    manifest_list_seal_threshold: Bytes = Field(0, description="ML+: bytes after which a list is rewritten; 0: never")
    manifest_list_entries: Literal["orphaned", "kept"] = Field(
        "orphaned", description="ML+: whether a false conflict leaves the entry valid, so that the retry adds none"
    )
    manifest_list_scope: Literal["table", "partition"] = Field(
        "table", description="a manifest list for each table, or for each partition: lengths, and appends of ML+"
    )
    manifest_list_bytes: Bytes = Field(10 * 1024, description="size of a manifest list")
    manifest_list_growth_bytes: Bytes = Field(
        0,
        description="bytes of a manifest in its table's manifest list, beyond those at the beginning: a commit adds "
        "one, merging manifests removes some",
    )
    manifest_file_bytes: Bytes = Field(100 * 1024, description="size of a manifest file")
    table_metadata_bytes: Bytes = Field(
        10 * 1024,
        description="size of table metadata that is not inlined, without snapshots if snapshot_bytes is given",
    )
    snapshot_bytes: Annotated[Bytes, Field(le=10**9)] = Field(
        0, description="bytes that each snapshot adds to its table's metadata, such as 1000; 0: the size stays the same"
    )
    table_snapshots: Whole = Field(0, description="snapshots that a table has at the beginning")
    snapshots_kept: Count = Field(1, description="expire_snapshots: snapshots of a table that an expiry leaves")
    retry_backoff: RetryBackoff = Field(RetryBackoff(), description="waits between retries")


CLASS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Configuration(Section):
    """A whole configuration file."""

    simulation: SimulationSection = Field(SimulationSection(), description="duration, seed and window of a run")
    experiment: ExperimentSection = Field(ExperimentSection(), description="the name of the experiment")
    storage: StorageSection = Field(StorageSection(), description="the object store; required")
    catalog: CatalogSection = Field(CatalogSection(), description="the catalog that commits go to")
    transaction: TransactionSection = Field(
        TransactionSection(), description="the transactions: arrivals, operations, commits and retries"
    )
    workload: Mapping[str, TransactionSection] = Field(
        default_factory=dict,
        description="classes of transactions by name, each with the keys of `transaction`; `transaction` has the "
        "values that they share",
    )

    def by_class(self) -> Mapping[str, "Configuration"]:
        """Return the configuration of each class: its transactions, and none of the other classes."""
        if not self.workload:
            return {DEFAULT_CLASS: self}
        return {
            name: self.model_copy(update={"transaction": section, "workload": {}})
            for name, section in self.workload.items()
        }
