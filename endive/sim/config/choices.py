"""Properties of a complete configuration: the requests that it makes, and the conflicts that can happen.

Requests are computed from the cost model's own rows, so that they cannot disagree with the simulation.
"""

from dataclasses import dataclass
from functools import cached_property

from endive.sim.config.defaults import partition_counts
from endive.sim.config.schema import CatalogSection, Configuration, Selection, TransactionSection
from endive.sim.cost import COST_MODELS, OperationCost
from endive.sim.latency import SizeBasedLatency
from endive.sim.limits import Contention, RateLimit
from endive.sim.operations import OPERATION_TYPES, OPERATIONS
from endive.sim.requests import OBJECTS
from endive.sim.storage import Profile

CONDITIONAL = ("cas", "append", "tail_append")
Request = tuple[str, str]
"""An operation, and the kind of its object."""


@dataclass(frozen=True)
class Choices:
    """A complete configuration and the profiles of its storage section."""

    config: Configuration
    profile: Profile
    """The effective latencies."""
    original: Profile
    """The provider's own latencies."""
    own_provider: bool
    """The provider comes from `storage.profile_file`."""

    @property
    def catalog(self) -> CatalogSection:
        """The catalog's section."""
        return self.config.catalog

    @property
    def transaction(self) -> TransactionSection:
        """The transactions' section."""
        return self.config.transaction

    @property
    def rows(self) -> list[OperationCost]:
        """The costs of the operation types in use."""
        model, mix = COST_MODELS[self.transaction.cost_model], self.transaction.operation_types
        return [model.operations[kind] for kind in OPERATION_TYPES if getattr(mix, kind) > 0]

    @cached_property
    def requests(self) -> frozenset[Request]:
        """Every request that may be made to the object store."""
        made = {("write" if kind.endswith("writes") else "read", OBJECTS[kind]) for kind in self._kinds()}
        if self.catalog.type == "service":
            made |= self._service_requests()
        elif self.catalog.type != "instant":
            made |= {("read", "catalog"), (self.catalog.commit_request, "catalog")}
        if self.catalog.type == "append" and (self.catalog.compaction_threshold or self.catalog.compaction_max_entries):
            made.add(("cas", "compaction"))
        if self.transaction.manifest_list_mode == "append":
            made.add(("append", "manifest_list"))
            if self.transaction.manifest_list_seal_threshold:
                made |= {("read", "manifest_list"), ("write", "manifest_list")}
        return frozenset(made)

    @property
    def pointers_matter(self) -> bool:
        """Whether commits to one pointer hinder each other, apart from conflicts."""
        limited = self.profile.contention != Contention() or self.profile.object_limit != RateLimit()
        service = self.catalog.service
        return bool(service.per_table or service.requests_per_s) if self.catalog.type == "service" else limited

    def _service_requests(self) -> set[Request]:
        """Return the requests whose latencies the server uses."""
        service = self.catalog.service
        made = set() if service.read else {("read", "catalog")}
        made |= set() if service.work else {("cas", "catalog")}
        made |= {("read", "catalog"), ("write", "catalog")} if service.helping else set()
        metadata = {("read", "table_metadata"), ("write", "table_metadata")}
        return made | (metadata if service.writes_metadata else set())

    def _kinds(self) -> set[str]:
        """Return the kinds of request that the cost model makes, in the chosen layout."""
        costs = [COST_MODELS[self.transaction.cost_model].publish]
        for row in self.rows:
            costs += [row.first, row.retry, *row.beside, row.per_snapshot]
            costs += [row.per_concurrent_manifest] * (self.transaction.manifests_per_concurrent_commit > 0)
            costs += [row.per_manifest] * (self.transaction.table_manifests > 0)
        kinds = {kind for cost in costs for kind, _ in cost.due} | {"metadata_reads", "metadata_writes"}
        if self.catalog.table_metadata_inlined:
            kinds -= {"metadata_reads", "metadata_writes"}
        if self.transaction.manifest_list_mode == "append":
            kinds -= {"manifest_list_writes"}
        kinds |= {"metadata_root_reads"} if self.transaction.metadata_root_read else set()
        merging = self.merges or self.merges_manifests
        return kinds | ({"manifest_file_reads", "manifest_file_writes"} if merging else set())

    @property
    def latencies_used(self) -> set[str]:
        """The rows of the profile that some request uses."""
        special = {(operation, kind): f"{kind}_{operation}" for operation, kind in self.requests}
        found = {name if name in self.profile.latencies else pair[0] for pair, name in special.items()}
        return found | {f"{name}_failure" for name in found if name in CONDITIONAL}

    def conditional(self) -> bool:
        """Whether the object store gets conditional requests at all."""
        return any(operation in CONDITIONAL for operation, _ in self.requests)

    def sized(self, *requests: Request) -> bool:
        """Whether one of these requests is made and takes longer for larger objects."""
        rows = [self.profile.find(*request) for request in requests if request in self.requests]
        return any(isinstance(row, SizeBasedLatency) and row.latency_per_mib_ms > 0 for row in rows)

    def weight(self, *names: str) -> bool:
        """Whether one of these operation types occurs."""
        return any(getattr(self.transaction.operation_types, name) > 0 for name in names)

    @property
    def pays_for_missed(self) -> bool:
        """Whether a retry costs more the more commits it has missed."""
        return any(row.per_snapshot.due or row.per_concurrent_manifest.due for row in self.rows)

    @property
    def real_conflicts(self) -> bool:
        """Whether a real conflict can happen."""
        by_chance = self.transaction.conflict_detector == "probabilistic"
        certain = not by_chance or self.transaction.real_conflict_probability > 0
        return certain and self.validates

    @property
    def validates(self) -> bool:
        """Whether an operation type occurs that can have a real conflict."""
        serializable = self.transaction.isolation == "serializable"
        used = [OPERATIONS[kind] for kind in OPERATION_TYPES if self.weight(kind)]
        return any(operation.validates_all or operation.conflicts(serializable) for operation in used)

    @property
    def validates_more(self) -> bool:
        """Whether an operation validates more snapshots if isolation is serializable."""
        return self.weight(*(kind for kind, operation in OPERATIONS.items() if operation.validates_serializable))

    @property
    def merges_manifests(self) -> bool:
        """Whether an operation merges manifests once a table has enough of them."""
        merging = [kind for kind in OPERATION_TYPES if OPERATIONS[kind].merges]
        merges = self.transaction.manifest_min_count_to_merge > 0 and self.weight(*merging)
        return merges or self.weight("rewrite_manifests")

    @property
    def merges(self) -> bool:
        """Whether a real conflict is merged."""
        return self.real_conflicts and self.transaction.real_conflict == "merge"

    @property
    def tracked(self) -> bool:
        """Whether partitions matter."""
        return self.transaction.partitions.per_txn is not None and max(partition_counts(self.config)) > 1

    @property
    def only_reads(self) -> bool:
        """Whether transactions read what they do not write."""
        parts = (self.transaction.tables, self.transaction.partitions)
        return any(written(part) < (part.per_txn or 1) for part in parts)


def written(selection: Selection) -> int:
    """Return how many of the selected tables or partitions are written."""
    return max(1, round((selection.per_txn or 1) * selection.write_fraction))
