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

from pydantic import BaseModel, ConfigDict, Field

from endive.errors import ConfigurationError
from endive.sim.config.distributions import DistributionSection, NotNegative
from endive.sim.config.validation import validated
from endive.sim.storage import Contention, Profile

PROFILE_SETS = ("spec", "measured")
DECISIONS = {"half": 0.5, "end": 1.0}
"""Point of its round trip at which a conditional request is decided, as a share of it."""


class ContentionSection(BaseModel):
    """How requests to one object slow each other down."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_writer: NotNegative = Field(description="each further request in flight adds this share to the latency")
    scale_max: Annotated[NotNegative, Field(ge=1)] = Field(description="but the factor never exceeds this")
    source: str | None = Field(None, description="origin of the values; for readers")


class ProfileSection(BaseModel):
    """One provider. It does not support operations that are missing here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field("", description="the provider's full name; for readers")
    decision: Literal["half", "end"] = Field(
        "end", description="point of its round trip at which a conditional write is decided"
    )
    contention: ContentionSection | None = Field(None, description="writes to one object slow each other down")
    read: DistributionSection = Field(description="GET")
    write: DistributionSection = Field(description="PUT")
    cas: DistributionSection | None = Field(None, description="conditional PUT that succeeds")
    cas_failure: DistributionSection | None = Field(None, description="conditional PUT that is refused")
    append: DistributionSection | None = Field(None, description="append at an offset that lands")
    append_failure: DistributionSection | None = Field(None, description="append at an offset that is refused")
    tail_append: DistributionSection | None = Field(None, description="append wherever the object ends")

    def build(self, name: str) -> Profile:
        """Return the profile."""
        rows = {operation: row for operation, row in self if isinstance(row, DistributionSection)}
        sources = {operation: row.source or "" for operation, row in rows.items()}
        if self.contention:
            sources["contention"] = self.contention.source or ""
        return Profile(
            name,
            {operation: row.build() for operation, row in rows.items()},
            Contention(self.contention.per_writer, self.contention.scale_max) if self.contention else Contention(),
            DECISIONS[self.decision],
            sources,
            self.title,
        )


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
