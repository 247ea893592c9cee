"""The configuration file's schema: every key, its type, its range and its default.

Keys that a document gives are kept as given. `None` as a default means that another choice decides; `resolve.py` says
which. A key that no code reads must not be here.
"""

from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from endive.sim.distribution_section import DistributionSection, NotNegative, Positive

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A TOML table. Unknown keys are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SimulationSection(Section):
    """How long, and with which random numbers."""

    duration_ms: Positive = Field(3_600_000.0, description="simulated time")
    seed: Whole = Field(0, description="of all random streams; `--seed` overrides it")
    output_path: str = Field("results.parquet", description="file name of the results, within the seed's directory")
    trim_start_ms: NotNegative | None = Field(None, description="warm-up left out of the figures; a quarter of the run")
    trim_end_ms: NotNegative | None = Field(None, description="the same at the end")

    @field_validator("output_path")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if PurePath(value).name != value or not value.endswith(".parquet"):
            raise ValueError("a plain file name ending in .parquet is expected; choose the directory with --out")
        return value


class ExperimentSection(Section):
    """What the experiment is called."""

    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = Field(
        None, description="first part of the directory's name; else the file's name"
    )


class LatencySection(Section):
    """Latencies that replace the profile's, by operation, or by kind of object and operation."""

    read: DistributionSection | None = None
    write: DistributionSection | None = None
    cas: DistributionSection | None = None
    cas_failure: DistributionSection | None = None
    append: DistributionSection | None = None
    append_failure: DistributionSection | None = None
    catalog_read: DistributionSection | None = None
    catalog_cas: DistributionSection | None = None
    catalog_append: DistributionSection | None = None
    compaction_cas: DistributionSection | None = None
    table_metadata_read: DistributionSection | None = None
    table_metadata_write: DistributionSection | None = None
    manifest_list_read: DistributionSection | None = None
    manifest_list_write: DistributionSection | None = None
    manifest_list_append: DistributionSection | None = None
    manifest_file_read: DistributionSection | None = None
    manifest_file_write: DistributionSection | None = None
    head_read: DistributionSection | None = None


class StorageSection(Section):
    """The object store."""

    provider: str = Field(description="a profile's name; `endive providers` lists them")
    profiles: Literal["spec", "measured"] = Field("spec", description="which set of profiles")
    profile_file: str | None = Field(None, description="a TOML file with profiles of your own, beside the set's")
    decision: Literal["half", "end"] | None = Field(None, description="where in its round trip a CAS is decided")
    failure_latency: bool = Field(True, description="a refused request takes as long as the profile says")
    contention: bool = Field(True, description="requests to one object slow each other down as the profile says")
    latency: LatencySection = LatencySection()


class PartitionTopology(Section):
    """How many partitions the tables have."""

    num_partitions: Count | None = Field(None, description="of every table")
    per_table: tuple[Count, ...] | None = Field(None, description="or table by table")


class CatalogSection(Section):
    """The catalog that commits go to."""

    type: Literal["cas", "append", "instant"] | None = Field(None, description="from what the provider has: cas first")
    num_tables: Count = 1
    latency_ms: NotNegative = Field(1.0, description="of an instant catalog's read and commit")
    conflict_granularity: Literal["catalog", "table", "partition"] | None = Field(
        None, description="what a commit must find unchanged: the catalog (cas, instant), the table (append)"
    )
    table_groups: Count = Field(1, description="tables share so many pointers, each swapped on its own")
    table_metadata_inlined: bool | None = Field(None, description="table metadata is part of the catalog")
    compaction_threshold: Whole = Field(16_000_000, description="bytes after which an append log is sealed; 0: never")
    compaction_max_entries: Whole = Field(0, description="entries after which it is sealed; 0: never")
    log_entry_size: Count = Field(100, description="bytes of an intention in the log")
    log_entry_read_ms: NotNegative = Field(0.0, description="added to a read for each entry since the checkpoint")
    partitions: PartitionTopology = PartitionTopology()


class Selection(Section):
    """Which tables, or which partitions of a table, a transaction touches."""

    per_txn: Count | None = None
    selector: Literal["uniform", "zipf"] = "uniform"
    alpha: Positive = Field(1.5, description="of a Zipf law")
    write_fraction: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="share that is written, not only read")


class OperationTypes(Section):
    """Relative frequency of the operation types."""

    fast_append: NotNegative = 0.0
    merge_append: NotNegative = 0.0
    validated_overwrite: NotNegative = 0.0

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return self.fast_append + self.merge_append + self.validated_overwrite


class RetryBackoff(Section):
    """Waits between retries."""

    enabled: bool | None = None
    base_ms: NotNegative | None = None
    multiplier: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    max_ms: NotNegative | None = None
    jitter: Fraction = Field(0.1, description="a wait is up to this share longer, at random")
    before_read: bool = Field(False, description="wait before the catalog is read again, not after the conflict")


class TransactionSection(Section):
    """The transactions: when they come, what they do, how they commit."""

    cost_model: Literal["spec", "iceberg", "pyiceberg"] = "spec"
    retry: Whole | None = Field(None, description="retries after the first attempt")
    retry_timeout_ms: Positive | None = Field(
        None, description="no retry starts later than this after the first attempt"
    )
    runtime: DistributionSection = DistributionSection(mean=180_000.0, sigma=1.5)
    arrivals: Literal["open", "closed"] = "open"
    inter_arrival: DistributionSection | None = Field(None, description="open: time between transactions")
    writers: Count | None = Field(None, description="closed: so many writers, one transaction each at a time")
    think: DistributionSection = DistributionSection(value=0.0)
    operation_types: OperationTypes = OperationTypes(fast_append=0.7, merge_append=0.2, validated_overwrite=0.1)
    tables: Selection = Selection(per_txn=1)
    partitions: Selection = Selection()
    isolation: Literal["snapshot", "serializable"] = "snapshot"
    conflict_detector: Literal["probabilistic", "partition_overlap"] = "probabilistic"
    real_conflict_probability: Fraction = 0.0
    real_conflict: Literal["abort", "merge", "restart"] = "abort"
    conflicting_manifests: DistributionSection = DistributionSection(value=1.0)
    count_behind: Literal["catalog", "table", "partition"] | None = None
    manifests_per_concurrent_commit: NotNegative = 1.5
    table_manifests: Whole = 1
    max_parallel: Count = 1
    manifest_list_mode: Literal["rewrite", "append"] = "rewrite"
    manifest_list_entry_size: Count = 50
    manifest_list_seal_threshold: Whole = 0
    manifest_list_entries: Literal["orphaned", "kept"] = "orphaned"
    manifest_list_scope: Literal["table", "partition"] = "table"
    manifest_list_bytes: Whole = 10 * 1024
    manifest_list_growth_bytes: Whole = 0
    manifest_file_bytes: Whole = 100 * 1024
    table_metadata_bytes: Whole = 10 * 1024
    retry_backoff: RetryBackoff = RetryBackoff()


class Configuration(Section):
    """A whole configuration file."""

    simulation: SimulationSection = SimulationSection()
    experiment: ExperimentSection = ExperimentSection()
    storage: StorageSection
    catalog: CatalogSection = CatalogSection()
    transaction: TransactionSection = TransactionSection()
