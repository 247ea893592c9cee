"""Distributions as they are written in TOML: `{ median = 27, sigma = 0.62, min = 10 }`.

Mean and median are those of the distribution before the floor `min`.
`distribution` may be left out where the parameters tell it.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from endive.sim.latency import (
    EmpiricalLatency,
    ExponentialLatency,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    SizeBasedLatency,
    UniformLatency,
)

TIME_MAX_MS = 7_776_000_000.0
"""Ninety days: far above anything meant, and exact to the nanosecond."""

NotNegative = Annotated[float, Field(ge=0, le=TIME_MAX_MS, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0, le=TIME_MAX_MS, allow_inf_nan=False, strict=True)]
Sigma = Annotated[float, Field(ge=0, le=5, allow_inf_nan=False, strict=True)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]

Name = Literal["lognormal", "exponential", "fixed", "uniform", "normal", "size_based", "empirical"]


class DistributionSection(BaseModel):
    """One distribution. Times in milliseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    distribution: Name | None = Field(None, description="its name; by default the one that the parameters imply")
    mean: Positive | None = Field(None, description="lognormal, normal, exponential: the mean, before the floor")
    median: Positive | None = Field(None, description="lognormal: the median, before the floor")
    sigma: Sigma | None = Field(None, description="lognormal, size_based: deviation of the logarithm")
    scale: Positive | None = Field(None, description="exponential: the mean, before the floor")
    value: NotNegative | None = Field(None, description="fixed: the value")
    stddev: NotNegative | None = Field(None, description="normal: the standard deviation")
    base: NotNegative | None = Field(None, description="size_based: median for an empty object")
    per_mib: NotNegative | None = Field(None, description="size_based: added to the median for each MiB")
    quantiles: tuple[tuple[Probability, Positive], ...] | None = Field(
        None, description="empirical: pairs of probability and value, such as [[0, 5], [0.5, 9], [1, 60]]"
    )
    min: NotNegative | None = Field(None, description="the floor: no value is lower; uniform: the lower end")
    max: Positive | None = Field(None, description="uniform: the upper end")
    source: str | None = Field(None, description="origin of the values; for readers")

    @property
    def kind(self) -> Name:
        """The named distribution, or the one that the parameters imply."""
        return self.distribution or _implied(self.model_fields_set) or "fixed"

    @model_validator(mode="after")
    def _complete(self) -> "DistributionSection":
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        if not self.distribution and not _implied(given):
            raise PydanticCustomError("distribution", "say which distribution: {names}", {"names": ", ".join(_KINDS)})
        problem = _problem(self.kind, given - {"distribution", "source"}) or self._inconsistency()
        if problem:
            raise PydanticCustomError("distribution", "{problem}", {"problem": problem})
        return self

    def _inconsistency(self) -> str | None:
        if self.kind == "uniform" and (self.min or 0.0) >= (self.max or 0.0):
            return "uniform needs min below max"
        if self.kind == "empirical":
            return _quantile_problem(self.quantiles or ())
        return None

    def build(self) -> LatencyDistribution:
        """Return the distribution."""
        return _KINDS[self.kind].build(self)


class _Kind(NamedTuple):
    one_of: tuple[tuple[str, ...], ...]
    """From each group, exactly one parameter."""
    optional: tuple[str, ...]
    implied_by: str
    """The parameter that implies this distribution if no name is given."""
    build: Callable[[DistributionSection], LatencyDistribution]


def _build_lognormal(section: DistributionSection) -> LatencyDistribution:
    sigma, floor = section.sigma or 0.0, section.min or 0.0
    if section.median is not None:
        return LognormalLatency.from_median(section.median, sigma, floor)
    return LognormalLatency.from_mean(section.mean or 0.0, sigma, floor)


_KINDS: Mapping[Name, _Kind] = {
    "lognormal": _Kind((("mean", "median"), ("sigma",)), ("min",), "sigma", _build_lognormal),
    "exponential": _Kind(
        (("scale", "mean"),),
        ("min",),
        "scale",
        lambda section: ExponentialLatency(section.scale or section.mean or 0.0, section.min or 0.0),
    ),
    "fixed": _Kind((("value",),), (), "value", lambda section: FixedLatency(section.value or 0.0)),
    "uniform": _Kind(
        (("min",), ("max",)), (), "max", lambda section: UniformLatency(section.min or 0.0, section.max or 0.0)
    ),
    "normal": _Kind(
        (("mean",), ("stddev",)),
        ("min",),
        "stddev",
        lambda section: NormalLatency(section.mean or 0.0, section.stddev or 0.0, section.min or 0.0),
    ),
    "size_based": _Kind(
        (("base",), ("per_mib",), ("sigma",)),
        ("min",),
        "base",
        lambda section: SizeBasedLatency(
            section.base or 0.0, section.per_mib or 0.0, section.sigma or 0.0, section.min or 0.0
        ),
    ),
    "empirical": _Kind((("quantiles",),), (), "quantiles", lambda section: EmpiricalLatency(section.quantiles or ())),
}
_IMPLIED_ORDER: tuple[Name, ...] = (
    "empirical",
    "size_based",
    "fixed",
    "uniform",
    "exponential",
    "normal",
    "lognormal",
)


def _implied(given: set[str]) -> Name | None:
    return next((name for name in _IMPLIED_ORDER if _KINDS[name].implied_by in given), None)


def _problem(kind: Name, given: set[str]) -> str | None:
    shape = _KINDS[kind]
    for group in shape.one_of:
        if len(given & set(group)) != 1:
            return f"{kind} needs {' or '.join(group)}{', not both' if given & set(group) else ''}"
    known = {name for group in shape.one_of for name in group} | set(shape.optional)
    surplus = sorted(given - known)
    return f"{kind} has no parameter {', '.join(surplus)}; it takes {', '.join(sorted(known))}" if surplus else None


def _quantile_problem(points: tuple[tuple[float, float], ...]) -> str | None:
    probabilities = [probability for probability, _ in points]
    if len(points) < 2 or probabilities[0] != 0 or probabilities[-1] != 1:
        return "quantiles need the minimum (probability 0) and the maximum (probability 1)"
    if sorted(set(probabilities)) != probabilities or sorted(value for _, value in points) != [v for _, v in points]:
        return "quantiles must rise, in probability and in value"
    return None
