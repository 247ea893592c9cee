"""Catalog presets: what a kind of catalog does, as data with sources.

A preset sets defaults of the `[catalog]` section: granularity, pointers, the place of table metadata, and the server.
Every value can be replaced in the configuration.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from endive.sim.config.distributions import DistributionSection, NotNegative, Positive
from endive.sim.config.profiles import known_client, load_clients
from endive.sim.limits import ClientRetries, RateLimit
from endive.sim.station import Station
from endive.sim.storage import LatencyDistribution, Profile, Trust
from endive.wording import suggestion

Whole = Annotated[int, Field(ge=0, le=100_000, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class ServiceSection(BaseModel):
    """The server of a catalog. Defaults are the preset's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    read: DistributionSection | None = Field(None, description="round trip of a catalog read; by default the store's")
    commit: DistributionSection | None = Field(
        None, description="round trip of a commit, without the server's work; by default 1 ms"
    )
    work: DistributionSection | None = Field(
        None, description="time that a worker needs for a commit, or writing a batch takes; by default the store's CAS"
    )
    workers: Whole | None = Field(None, description="commits that are worked on at the same time; 0: any number")
    per_table: Flag | None = Field(None, description="the workers are those of a table: with one worker, a lock")
    batches: Whole | None = Field(
        None, description="group commit: batches written at the same time; 0: every commit is written alone"
    )
    prepare_ms: NotNegative | None = Field(
        None, description="group commit: time of the process for each commit, one after the other; by default 0"
    )
    helping: Flag | None = Field(
        None,
        description="group commit of processes that share a log and carry out each other's commits; listing, reading "
        "and announcing take the store's read and write",
    )
    poll_ms: NotNegative | None = Field(
        None, description="a waiting commit asks for its turn after this time; 0: it is called at once"
    )
    poll_multiplier: Annotated[Positive, Field(ge=1, le=1000)] | None = Field(
        None, description="factor from one such wait to the next; by default 1"
    )
    poll_max_ms: NotNegative | None = Field(None, description="the longest such wait; by default poll_ms")
    wait_max_ms: NotNegative | None = Field(None, description="a commit that waited so long gives up; 0: never")
    retries: Whole | None = Field(
        None, description="a commit that lost against commits that do not overlap is tried again by the server"
    )
    writes_metadata: Flag | None = Field(
        None, description="the server reads and writes the table's metadata file, as part of its work"
    )
    requests_per_s: Positive | None = Field(None, description="commits that the service admits per second, if limited")
    burst: Annotated[Positive, Field(ge=1)] | None = Field(None, description="of that limit: commits at once")
    client: str | None = Field(None, description="SDK that repeats throttled commits; `endive providers` lists them")

    @field_validator("client")
    @classmethod
    def _known_client(cls, value: str | None) -> str | None:
        return None if value is None else known_client(value)

    def station(self) -> Station:
        """Return the rules of the server."""
        poll_ms = self.poll_ms or 0.0
        return Station(
            self.workers or 0,
            self.batches or 0,
            bool(self.per_table),
            poll_ms,
            self.poll_multiplier or 1.0,
            poll_ms if self.poll_max_ms is None else self.poll_max_ms,
            self.wait_max_ms or 0.0,
            self.retries or 0,
            serves=True,
            prepare_ms=self.prepare_ms or 0.0,
            helping=bool(self.helping),
        )

    def build(self, store: Profile, metadata_bytes: int) -> Profile:
        """Return the server as a profile: its latencies, its limit and its workers."""
        limit = RateLimit(self.requests_per_s, self.burst or 1.0) if self.requests_per_s else RateLimit()
        client = load_clients()[self.client] if self.client else ClientRetries()
        rows = dict(self._rows(store, metadata_bytes))
        return Profile("catalog", rows, decision=0.5, object_limit=limit, client=client, station=self.station())

    def _rows(self, store: Profile, metadata_bytes: int) -> Iterator[tuple[str, LatencyDistribution]]:
        yield "read", self.read.build() if self.read else store.find("read", "catalog") or _MILLISECOND.build()
        yield "cas", (self.commit or _MILLISECOND).build()
        yield "work", self.work.build() if self.work else store.find("cas", "catalog") or _MILLISECOND.build()
        kind, size_bytes = ("catalog", 0) if self.helping else ("table_metadata", metadata_bytes)
        for operation in ("read", "write") if self.helping or self.writes_metadata else ():
            row = store.find(operation, kind)
            if row is not None:
                yield f"work_{operation}", row.with_size(size_bytes)


_MILLISECOND = DistributionSection(value=1.0)


class PresetSection(BaseModel):
    """One kind of catalog."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    type: Literal["cas", "service"]
    conflict_granularity: Literal["catalog", "table", "partition"]
    pointers: Literal["catalog", "table"]
    """One pointer for all tables, or one for each."""
    table_metadata_inlined: bool
    service: ServiceSection = ServiceSection()
    trust: Trust = "unchecked"
    checked: str
    """How the preset was checked, and with what error."""
    sources: Mapping[str, str]

    def defaults(self, num_tables: int) -> Iterator[tuple[str, Any]]:
        """Yield dotted keys and the preset's values."""
        yield "catalog.type", self.type
        yield "catalog.conflict_granularity", self.conflict_granularity
        yield "catalog.table_groups", num_tables if self.pointers == "table" else 1
        yield "catalog.table_metadata_inlined", self.table_metadata_inlined
        for name, value in self.service:
            if value is not None:
                yield f"catalog.service.{name}", value


@cache
def load_presets() -> Mapping[str, PresetSection]:
    """Return the presets that come with Endive, by name."""
    text = files("endive.sim").joinpath("providers/catalogs.toml").read_text(encoding="utf-8")
    return {name: PresetSection.model_validate(table) for name, table in tomllib.loads(text).items()}


def known_preset(name: str) -> str:
    """Return the name of a preset, if it is one. `ValueError` with a suggestion if not."""
    known = load_presets()
    if name not in known:
        raise ValueError(f"no preset {name!r}{suggestion(name, known) or '; known: ' + ', '.join(known)}")
    return name
