"""The configuration file's schema: every key, its type, its range, its default and what it means.

Keys that a document gives are kept as given. `None` as a default means that another choice decides; `resolve.py` says
which. A key that no code reads must not be here. Upper limits are far beyond what makes sense: they keep a slip of the
keyboard from running for ever. `endive config keys` prints what this file says.
"""

import re
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from endive.sim.config.distributions import DistributionSection, NotNegative, Positive

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Whole = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Bytes = Annotated[int, Field(ge=0, le=10**15, strict=True)]
Fraction = Annotated[float, Field(ge=0, le=1, strict=True)]
Weight = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)]
Flag = Annotated[bool, Field(strict=True)]

SEED_MAX = 2**63 - 1
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Section(BaseModel):
    """A TOML table. Unknown keys are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SimulationSection(Section):
    """How long, and with which random numbers."""

    duration_ms: Annotated[Positive, Field(ge=1)] = Field(3_600_000.0, description="simulated time")
    seed: Annotated[int, Field(ge=0, le=SEED_MAX, strict=True)] = Field(
        0, description="of all random streams; `--seed` overrides it"
    )
    output_path: str = Field("results.parquet", description="file name of the results, within the seed's directory")
    trim_start_ms: NotNegative | None = Field(
        None, description="warm-up left out of the figures; unless given, a quarter of the run"
    )
    trim_end_ms: NotNegative | None = Field(
        None, description="cool-down left out of the figures; unless given, a quarter of the run"
    )

    @field_validator("output_path")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if PurePath(value).name != value or not value.endswith(".parquet"):
            raise ValueError("expected a plain file name ending in .parquet; choose the directory with --out")
        return value


class ExperimentSection(Section):
    """What the experiment is called."""

    label: str | None = Field(None, description="first part of the directory's name; unless given, the file's name")

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
    catalog_read: DistributionSection | None = _latency("reading the catalog (cas, append)")
    catalog_cas: DistributionSection | None = _latency("swapping the catalog (cas), refused or not")
    catalog_append: DistributionSection | None = _latency("appending to the catalog's log (append), refused or not")
    compaction_cas: DistributionSection | None = _latency("swapping the checkpoint of a sealed log (append)")
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
        "spec", description="which figures: the specification's, or the later measurements"
    )
    profile_file: str | None = Field(
        None, description="a TOML file with profiles of your own, seen from this file's directory"
    )
    decision: Literal["half", "end"] | None = Field(
        None, description="where in its round trip a conditional write is decided; unless given, as the profile says"
    )
    failure_latency: Flag = Field(
        True, description="a refused write takes as long as the profile says; false: as long as a successful one"
    )
    contention: Flag = Field(True, description="writes to one object slow each other down as the profile says")
    latency: LatencySection = Field(LatencySection(), description="latencies in the place of the profile's")


class PartitionTopology(Section):
    """How many partitions the tables have."""

    num_partitions: Count | None = Field(None, description="partitions of every table; unless given, 1")
    per_table: tuple[Count, ...] | None = Field(None, description="or table by table, such as [10, 20, 30]")


class CatalogSection(Section):
    """The catalog that commits go to."""

    type: Literal["cas", "append", "instant"] | None = Field(
        None,
        description="one object swapped, a log appended to, or a fixed latency; unless given, what the provider has, "
        "cas first",
    )
    num_tables: Count = Field(1, description="tables in the catalog")
    latency_ms: NotNegative = Field(1.0, description="of an instant catalog's read and commit")
    conflict_granularity: Literal["catalog", "table", "partition"] | None = Field(
        None, description="what a commit must find unchanged; unless given, the catalog, for append the table"
    )
    table_groups: Count = Field(1, description="tables share so many pointers, each swapped on its own")
    table_metadata_inlined: Flag | None = Field(
        None,
        description="table metadata is part of the catalog and costs no requests; unless given, as the cost model says",
    )
    compaction_threshold: Bytes = Field(16_000_000, description="bytes after which an append log is sealed; 0: never")
    compaction_max_entries: Whole = Field(0, description="entries after which an append log is sealed; 0: never")
    log_entry_size: Annotated[Bytes, Field(ge=1)] = Field(100, description="bytes of an intention in an append log")
    log_entry_read_ms: NotNegative = Field(0.0, description="added to a read for each entry since the checkpoint")
    partitions: PartitionTopology = Field(PartitionTopology(), description="how many partitions the tables have")


class Selection(Section):
    """Which tables, or which partitions of a table, a transaction touches."""

    per_txn: Count | None = Field(None, description="how many a transaction touches")
    selector: Literal["uniform", "zipf"] = Field("uniform", description="all alike, or the first ones most often")
    alpha: Annotated[Positive, Field(le=20)] = Field(1.5, description="exponent of the Zipf law")
    write_fraction: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        1.0, description="share of them that is written; the others are only read"
    )


class OperationTypes(Section):
    """Relative frequency of the operation types."""

    fast_append: Weight = Field(0.0, description="adds files, checks nothing, never contradicts")
    merge_append: Weight = Field(0.0, description="adds files and merges manifests: a retry merges again")
    validated_overwrite: Weight = Field(0.0, description="replaces data: a retry checks every snapshot it missed")

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return self.fast_append + self.merge_append + self.validated_overwrite


class RetryBackoff(Section):
    """Waits between retries. What is not given is as the cost model says."""

    enabled: Flag | None = Field(None, description="wait before a retry; unless given, as the cost model says")
    base_ms: NotNegative | None = Field(
        None, description="the first wait; unless given, as the cost model says, else 10"
    )
    multiplier: Annotated[Positive, Field(ge=1, le=1000)] = Field(2.0, description="each wait is so much longer")
    max_ms: NotNegative | None = Field(
        None, description="the longest wait; unless given, as the cost model says, else 5000"
    )
    jitter: Fraction = Field(0.1, description="a wait is up to this share longer, at random")
    before_read: Flag | None = Field(
        None, description="wait before the catalog is read again, as libraries do, not after the conflict is resolved"
    )


class TransactionSection(Section):
    """The transactions: when they come, what they do, how they commit."""

    cost_model: Literal["spec", "iceberg", "pyiceberg"] = Field(
        "spec", description="whose requests an attempt makes: the specification's, Iceberg's (Java) or PyIceberg's"
    )
    retry: Whole | None = Field(
        None, description="retries after the first attempt; unless given, 10 (spec) or 4 (iceberg, pyiceberg)"
    )
    retry_timeout_ms: Positive | None = Field(
        None, description="no retry starts later than this after the first attempt; unless given, as the cost model"
    )
    runtime: DistributionSection = Field(
        DistributionSection(mean=180_000.0, sigma=1.5), description="work between reading the catalog and committing"
    )
    arrivals: Literal["open", "closed"] = Field(
        "open", description="transactions come whatever the others do, or writers commit one after another"
    )
    inter_arrival: DistributionSection | None = Field(None, description="open: time between transactions; required")
    writers: Count | None = Field(None, description="closed: so many writers, one transaction each; required")
    think: DistributionSection = Field(
        DistributionSection(value=0.0), description="closed: a writer's pause before its next transaction"
    )
    operation_types: OperationTypes = Field(
        OperationTypes(fast_append=0.7, merge_append=0.2, validated_overwrite=0.1),
        description="relative frequency of the operation types",
    )
    tables: Selection = Field(Selection(per_txn=1), description="which tables a transaction touches")
    partitions: Selection = Field(
        Selection(), description="which partitions of each; without per_txn, partitions are not tracked"
    )
    isolation: Literal["snapshot", "serializable"] = Field(
        "snapshot", description="serializable: what was only read must not have changed either"
    )
    conflict_detector: Literal["probabilistic", "partition_overlap"] = Field(
        "probabilistic", description="which overlaps are real conflicts: a share at random, or all"
    )
    real_conflict_probability: Fraction = Field(0.0, description="share of overlaps that are real conflicts")
    real_conflict: Literal["abort", "merge", "restart"] = Field("abort", description="what a real conflict leads to")
    conflicting_manifests: DistributionSection = Field(
        DistributionSection(value=1.0), description="manifest files that merging a real conflict reads and writes"
    )
    count_behind: Literal["catalog", "table", "partition"] | None = Field(
        None, description="whose missed commits a retry pays for; unless given, as the cost model says"
    )
    manifests_per_concurrent_commit: Annotated[NotNegative, Field(le=10_000)] = Field(
        1.5, description="manifest files that a merge append merges for each commit missed"
    )
    table_manifests: Annotated[Whole, Field(le=100_000)] = Field(
        1, description="manifests that a table has, which PyIceberg reads"
    )
    max_parallel: Count = Field(1, description="manifest lists and files read or written at the same time")
    manifest_list_mode: Literal["rewrite", "append"] = Field(
        "rewrite", description="manifest lists are written anew, or appended to (ML+)"
    )
    manifest_list_entry_size: Annotated[Bytes, Field(ge=1)] = Field(50, description="ML+: bytes of an entry")
    manifest_list_seal_threshold: Bytes = Field(0, description="ML+: bytes after which a list is rewritten; 0: never")
    manifest_list_entries: Literal["orphaned", "kept"] = Field(
        "orphaned", description="ML+: whether a false conflict leaves the entry valid, so that the retry adds none"
    )
    manifest_list_scope: Literal["table", "partition"] = Field(
        "table", description="ML+: a manifest list for each table, or for each partition"
    )
    manifest_list_bytes: Bytes = Field(10 * 1024, description="size of a manifest list")
    manifest_list_growth_bytes: Bytes = Field(0, description="how much each commit adds to its table's manifest list")
    manifest_file_bytes: Bytes = Field(100 * 1024, description="size of a manifest file")
    table_metadata_bytes: Bytes = Field(10 * 1024, description="size of table metadata that is not inlined")
    retry_backoff: RetryBackoff = Field(RetryBackoff(), description="waits between retries")


class Configuration(Section):
    """A whole configuration file."""

    simulation: SimulationSection = Field(SimulationSection(), description="how long, and with which random numbers")
    experiment: ExperimentSection = Field(ExperimentSection(), description="what the experiment is called")
    storage: StorageSection = Field(StorageSection(), description="the object store; required")
    catalog: CatalogSection = Field(CatalogSection(), description="the catalog that commits go to")
    transaction: TransactionSection = Field(
        TransactionSection(), description="the transactions: when they come, what they do, how they commit"
    )
