"""Provider profiles: figures as data, with their source beside each.

`providers/spec.toml` is the specification's table, `providers/measured.toml` the later measurements. A user's own file
has the same form: a table for each provider, in it a distribution for each operation.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict

from endive.errors import ConfigurationError
from endive.sim.distribution_section import DistributionSection, NotNegative
from endive.sim.faults import faults_of
from endive.sim.storage import Contention, Profile

PROFILE_SETS = ("spec", "measured")
DECISIONS = {"half": 0.5, "end": 1.0}
"""Where in its round trip a conditional request is decided, as a share of it."""


class ContentionSection(BaseModel):
    """How requests to one object slow each other down."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_writer: NotNegative
    scale_max: NotNegative
    source: str | None = None


class ProfileSection(BaseModel):
    """One provider. An operation that is missing is one that the provider does not have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    decision: Literal["half", "end"] = "end"
    contention: ContentionSection | None = None
    read: DistributionSection
    write: DistributionSection
    cas: DistributionSection | None = None
    cas_failure: DistributionSection | None = None
    append: DistributionSection | None = None
    append_failure: DistributionSection | None = None
    tail_append: DistributionSection | None = None

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
    """Return the profiles of a TOML text. All its faults at once; `source` names it in the message."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(source, [f"not valid TOML: {error}"]) from error
    profiles: dict[str, Profile] = {}
    faults: list[str] = []
    for name, table in tables.items():
        section, found = faults_of(ProfileSection, table, prefix=name)
        faults += found
        if isinstance(section, ProfileSection) and not found:
            profiles[name] = section.build(name)
    if faults:
        raise ConfigurationError(source, faults)
    return profiles


def load_profile_set(name: str) -> Mapping[str, Profile]:
    """Return the profiles that come with Endive: `spec` or `measured`."""
    text = files("endive.sim").joinpath(f"providers/{name}.toml").read_text(encoding="utf-8")
    return parse_profiles(f"{name}.toml", text)
