"""Provider profiles: latencies as data, each with its source.

`providers/spec.toml` has the latencies of the Simulator Specification, `providers/measured.toml` later measurements. A
user's file has the same form: a table for each provider, in it a distribution for each operation.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from endive.errors import ConfigurationError
from endive.sim.config.distributions import DistributionSection, NotNegative, Positive
from endive.sim.config.validation import validated
from endive.sim.limits import ClientRetries, Contention, PrefixLimit, RateLimit
from endive.sim.storage import Profile, Trust
from endive.wording import suggestion

PROFILE_SETS = ("spec", "measured")
DECISIONS = {"half": 0.5, "end": 1.0}
"""Words for the point of its round trip at which a conditional request is decided, as a share of it."""

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
Decision = Literal["half", "end"] | Share
Attempts = Annotated[int, Field(ge=1, le=1000, strict=True)]


def share_of(decision: Decision) -> float:
    """Return the point of decision as a share of the round trip."""
    return DECISIONS[decision] if isinstance(decision, str) else decision


def decision_name(share: float) -> Decision:
    """Return the word for a point of decision, or the share itself."""
    return "half" if share == DECISIONS["half"] else "end" if share == DECISIONS["end"] else share


class ContentionSection(BaseModel):
    """How requests to one object slow each other down."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_writer: NotNegative = Field(0.0, description="each further request in flight adds this share to the latency")
    scale_max: Annotated[NotNegative, Field(ge=1)] = Field(description="but the factor never exceeds this")
    half: NotNegative = Field(
        0.0, description="instead of per_writer: with so many further requests in flight, half of the slow-down"
    )
    free: Attempts = Field(1, description="so many requests in flight do not slow each other down")
    source: str | None = Field(None, description="origin of the values; for readers")

    def build(self) -> Contention:
        """Return the contention."""
        return Contention(self.per_writer, self.scale_max, self.free, self.half)


class RateLimitSection(BaseModel):
    """A token bucket: a request takes a token, and is throttled if there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_s: Positive = Field(description="tokens that come back in a second")
    burst: Annotated[Positive, Field(ge=1)] = Field(1.0, description="tokens of a full bucket")
    refusal_cost: NotNegative = Field(1.0, description="tokens that a request takes whose condition does not hold")
    throttle_cost: NotNegative = Field(0.0, description="tokens that a throttled request takes, if there are any")
    source: str | None = Field(None, description="origin of the values; for readers")

    def build(self) -> RateLimit:
        """Return the limit."""
        return RateLimit(self.per_s, self.burst, self.refusal_cost, self.throttle_cost)


class PrefixLimitSection(BaseModel):
    """Requests per second that one prefix of a bucket takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reads_per_s: NotNegative = Field(0.0, description="reads a second; 0: no limit")
    writes_per_s: NotNegative = Field(0.0, description="writes a second; 0: no limit")
    source: str | None = Field(None, description="origin of the values; for readers")

    def build(self) -> PrefixLimit:
        """Return the limit."""
        return PrefixLimit(self.reads_per_s, self.writes_per_s)


class ClientSection(BaseModel):
    """How the SDK of a client repeats a throttled request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field("", description="the SDK's full name; for readers")
    attempts: Attempts = Field(description="requests in all, the first one included")
    base_ms: NotNegative = Field(description="the first wait")
    multiplier: Annotated[NotNegative, Field(ge=1, le=1000)] = Field(
        2.0, description="factor from one wait to the next"
    )
    max_ms: NotNegative = Field(description="the longest wait")
    jitter: Share = Field(0.0, description="random share by which a wait is shorter, at most")
    source: str | None = Field(None, description="origin of the values; for readers")

    def build(self, name: str) -> ClientRetries:
        """Return the retry policy."""
        return ClientRetries(self.attempts, self.base_ms, self.multiplier, self.max_ms, self.jitter, name)


class ProfileSection(BaseModel):
    """One provider. It does not support operations that are missing here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field("", description="the provider's full name; for readers")
    trust: Trust = Field("unchecked", description="whether the profile was compared with measurements")
    checked: str = Field("", description="how it was checked, and with what error; for readers")
    decision: Decision = Field(
        "end", description="point of its round trip at which a conditional write is decided: a word, or a share of it"
    )
    append_decision: Decision | None = Field(None, description="the same for appends, if it differs")
    contention: ContentionSection | None = Field(None, description="writes to one object slow each other down")
    append_contention: ContentionSection | None = Field(None, description="the same for appends, if it differs")
    object_limit: RateLimitSection | None = Field(None, description="conditional writes to one object per second")
    prefix_limit: PrefixLimitSection | None = Field(None, description="requests to one prefix per second")
    client: str | None = Field(None, description="SDK that repeats throttled requests; `endive providers` lists them")
    read: DistributionSection = Field(description="GET")
    write: DistributionSection = Field(description="PUT")
    cas: DistributionSection | None = Field(None, description="conditional PUT that succeeds")
    cas_failure: DistributionSection | None = Field(None, description="conditional PUT that is refused")
    append: DistributionSection | None = Field(None, description="append at an offset that lands")
    append_failure: DistributionSection | None = Field(None, description="append at an offset that is refused")
    tail_append: DistributionSection | None = Field(None, description="append wherever the object ends")
    compaction_cas: DistributionSection | None = Field(
        None, description="conditional PUT of the checkpoint of an append catalog's log; by default as cas"
    )

    def build(self, name: str) -> Profile:
        """Return the profile."""
        rows = {operation: row for operation, row in self if isinstance(row, DistributionSection)}
        sources = {operation: row.source or "" for operation, row in rows.items()}
        kinds = ContentionSection | RateLimitSection | PrefixLimitSection
        limits = {name: row for name, row in self if isinstance(row, kinds)}
        sources |= {name: row.source or "" for name, row in limits.items()}
        return Profile(
            name,
            {operation: row.build() for operation, row in rows.items()},
            self.contention.build() if self.contention else Contention(),
            share_of(self.decision),
            sources,
            self.title,
            self.append_contention.build() if self.append_contention else None,
            None if self.append_decision is None else share_of(self.append_decision),
            self.object_limit.build() if self.object_limit else RateLimit(),
            self.prefix_limit.build() if self.prefix_limit else PrefixLimit(),
            load_clients()[self.client] if self.client else ClientRetries(),
            trust=self.trust,
            checked=self.checked,
        )

    @field_validator("client")
    @classmethod
    def _known_client(cls, value: str | None) -> str | None:
        return None if value is None else known_client(value)


def known_client(name: str) -> str:
    """Return the name of an SDK, if it is one. `ValueError` with a suggestion if not."""
    known = load_clients()
    if name not in known:
        raise ValueError(f"no SDK {name!r}{suggestion(name, known) or '; known: ' + ', '.join(known)}")
    return name


@cache
def load_client_sections() -> Mapping[str, ClientSection]:
    """Return the retry policies of SDKs that come with Endive, with their sources."""
    text = files("endive.sim").joinpath("providers/clients.toml").read_text(encoding="utf-8")
    return {name: ClientSection.model_validate(table) for name, table in tomllib.loads(text).items()}


@cache
def load_clients() -> Mapping[str, ClientRetries]:
    """Return the retry policies of SDKs, by name."""
    return {name: section.build(name) for name, section in load_client_sections().items()}


def parse_profiles(source: str, text: str) -> dict[str, Profile]:
    """Return the profiles of a TOML text. Reports all errors at once; `source` names it in the message."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(source, [f"not valid TOML: {error}"]) from error
    profiles: dict[str, Profile] = {}
    invalid: list[str] = [] if tables else ["holds no profile; a table for each provider is expected"]
    for name, table in tables.items():
        section, found = validated(ProfileSection, table, prefix=name)
        invalid += map(str, found)
        if isinstance(section, ProfileSection) and not found:
            profiles[name] = section.build(name)
    if invalid:
        raise ConfigurationError(source, invalid)
    return profiles


def load_profile_file(path: Path) -> dict[str, Profile]:
    """Return the profiles of a user's file."""
    return parse_profiles(str(path), read_text(path))


def read_text(path: Path) -> str:
    """Return the text of a TOML file. `ConfigurationError` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ConfigurationError(str(path), [f"cannot be read: {reason}"]) from error


@cache
def load_profile_set(name: str) -> Mapping[str, Profile]:
    """Return the profiles that come with Endive: `spec` or `measured`."""
    text = files("endive.sim").joinpath(f"providers/{name}.toml").read_text(encoding="utf-8")
    return parse_profiles(f"{name}.toml", text)
