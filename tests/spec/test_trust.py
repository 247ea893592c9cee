"""Trust labels: every provider, preset and cost model says how it was checked, and results carry it."""

import json

from benchmarks.closed_loop import measurements
from benchmarks.report import RESULTS
from endive.sim.config.catalogs import load_presets
from endive.sim.config.configuration import parse_configuration
from endive.sim.config.profiles import PROFILE_SETS, load_profile_set
from endive.sim.cost import COST_MODELS

TEXT = """
storage = { provider = "gcp", profiles = "measured" }
catalog.preset = "glue"
transaction = { cost_model = "pyiceberg", inter_arrival = { scale = 1000 } }
"""


def test_everything_says_how_it_was_checked() -> None:
    profiles = [profile for name in PROFILE_SETS for profile in load_profile_set(name).values()]
    assert all(profile.checked for profile in profiles)
    assert all(preset.checked for preset in load_presets().values())
    assert all(model.checked for model in COST_MODELS.values())


def test_a_configuration_carries_the_labels_of_its_parts() -> None:
    settings = parse_configuration(TEXT)
    found = {part: label["trust"] for part, label in settings.trust.items()}
    assert found == {"provider gcp": "partly", "catalog glue": "unchecked", "cost model pyiceberg": "checked"}


def test_a_provider_is_checked_only_if_the_closed_loop_agrees() -> None:
    rows = json.loads((RESULTS / "closed_loop.json").read_text(encoding="utf-8"))["rows"]
    for provider in measurements():
        own = [row for row in rows if row["provider"] == provider]
        agrees = all(
            abs(row["throughput_error_percent"]) <= 6 and abs(row["failure_rate_error_points"]) <= 3 for row in own
        )
        assert (load_profile_set("measured")[provider].trust != "unchecked") is agrees
