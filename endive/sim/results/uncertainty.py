"""Model uncertainty: the same configuration under other assumptions about quantities that were not measured.

Seeds show how much chance changes a metric. They say nothing of the model: at what point of its round trip a
conditional write is decided, whether a retry writes its manifest again, what a commit must find unchanged. Each of
these assumptions is changed alone, with the same seeds.
"""

from collections.abc import Iterator, Mapping

from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings
from endive.sim.config.profiles import share_of
from endive.sim.results.interventions import Intervention

AS_CONFIGURED = "as configured"
Ranges = Mapping[str, Mapping[str, float]]
"""Metric, assumption, mean over the seeds."""


def assumptions_of(settings: Settings) -> dict[str, Settings]:
    """Return the configuration under each other assumption, by the name of the assumption."""
    found: dict[str, Settings] = {}
    for one in (*_decision(settings), *_manifests(settings), *_granularity(settings)):
        try:
            found[one.advice] = one.applied(settings)
        except ConfigurationError:
            continue  # the assumption does not exist for this configuration
    return found


def _decision(settings: Settings) -> Iterator[Intervention]:
    if settings.values.catalog.type not in ("cas", "append"):
        return
    for decision in ("half", "end"):
        if abs(share_of(decision) - settings.profile.decision) > 0.01:
            yield Intervention("decision", f"CAS decided at {decision}", {"storage.decision": decision})


def _manifests(settings: Settings) -> Iterator[Intervention]:
    classes = settings.values.by_class()
    reuses = any(one.transaction.manifest_reuse for one in classes.values())
    values = {
        f"{f'workload.{name}' if settings.values.workload else 'transaction'}.manifest_reuse": not reuses
        for name, one in classes.items()
        if one.transaction.cost_model != "pyiceberg"  # its requests equal a trace
    }
    if values:
        yield Intervention("manifests", "manifests rewritten" if reuses else "manifests reused", values)


def _granularity(settings: Settings) -> Iterator[Intervention]:
    other = "table" if settings.values.catalog.conflict_granularity == "catalog" else "catalog"
    yield Intervention("granularity", f"granularity {other}", {"catalog.conflict_granularity": other})
