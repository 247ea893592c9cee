"""Configurations with classes: messages, warnings, effective values, printed results."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from endive.cli.app import app
from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, parse_configuration

ROOT = Path(__file__).resolve().parents[2]
BASE = 'storage.provider = "s3"\ncatalog.num_tables = 3\n'
OPEN = "inter_arrival.scale = 1_000\n"


def settings(classes: str, *overrides: str) -> Settings:
    return parse_configuration(BASE + classes, "mine.toml", overrides)


def errors(classes: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        settings(classes, *overrides)
    return list(caught.value.errors)


def test_a_class_has_the_shared_values_and_its_own() -> None:
    found = settings(
        f"[transaction]\nretry = 3\ncost_model = 'iceberg'\n[workload.a]\n{OPEN}[workload.b]\nretry=7\n{OPEN}"
    )
    a, b = (found.values.workload[name] for name in ("a", "b"))
    assert (a.retry, b.retry) == (3, 7)
    assert a.cost_model == b.cost_model == "iceberg"
    assert b.retry_backoff.base_ms == 100.0
    assert found.origins["workload.b.retry_backoff.base_ms"] == "cost model iceberg"


def test_a_distribution_of_a_class_replaces_the_shared_one_and_a_selection_is_completed() -> None:
    shared = "[transaction]\nruntime = { median = 5, sigma = 1 }\ntables = { per_txn = 2, selector = 'zipf' }\n"
    found = settings(f"{shared}[workload.a]\n{OPEN}runtime.value = 9\ntables.alpha = 0.9\n").values.workload["a"]
    assert found.runtime.model_dump(exclude_none=True) == {"value": 9.0}
    assert (found.tables.per_txn, found.tables.selector, found.tables.alpha) == (2, "zipf", 0.9)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (f"[workload.a]\n{OPEN}retrys = 3", "workload.a.retrys: unknown key; did you mean 'retry'?"),
        (f"[workloads.a]\n{OPEN}", "workloads: unknown key; did you mean 'workload'?"),
        ("[workload]\ninter_arrival = 5", "workload.inter_arrival: expected a table with the keys of a class"),
        ("workload = 3", "workload: expected tables, such as [workload.streams], but found 3"),
        (f"[workload.'a b']\n{OPEN}", "workload.a b: a class's name is letters, digits, dashes and underscores"),
        ("[workload.a]\nretry = 1", "workload.a.inter_arrival: required for open arrivals"),
        ("[workload.a]\narrivals = 'triggered'", "workload.a.interval_ms: required for triggered arrivals"),
        (f"[workload.a]\n{OPEN}arrivals = 'trigger'", "workload.a.arrivals: 'trigger' is not one of"),
        (f"[workload.a]\n{OPEN}tables.only = [0, 3]", "workload.a.tables.only: expected different numbers from 0 to 2"),
        (f"[workload.a]\n{OPEN}tables.shares = [1, 2]", "workload.a.tables.shares: 2 numbers for 3 tables"),
        (f"[workload.a]\n{OPEN}tables.choice = 'writer'", "workload.a.tables.choice: open arrivals have no writers"),
        (f"[workload.a]\n{OPEN}manifest_list_mode = 'append'", "workload.a.manifest_list_mode: belongs to the tables"),
        (f"[workload.a]\n{OPEN}rate.burst_ms = 5", "workload.a.rate: burst_every_ms and burst_ms go together"),
        (f"[workload.a]\n{OPEN}rate.factors = [0, 0]", "workload.a.rate.factors: expected a mean of at least"),
    ],
)
def test_an_error_names_the_class(classes: str, expected: str) -> None:
    found = errors(classes)
    assert found[0].startswith(expected)
    assert len(found) == 1


def test_an_error_of_the_shared_section_is_reported_once() -> None:
    found = errors(f"transaction.retry = -1\n[workload.a]\n{OPEN}[workload.b]\n{OPEN}")
    assert found == ["transaction.retry: expected at least 0, but found -1"]


def test_a_class_can_be_overridden() -> None:
    assert settings(f"[workload.a]\n{OPEN}", "workload.a.retry=1").values.workload["a"].retry == 1
    with pytest.raises(ConfigurationError, match="retrie: unknown key; did you mean"):
        settings(f"[workload.a]\n{OPEN}", "workload.a.retrie=1")


def test_a_key_without_effect_is_named_where_it_is_set() -> None:
    own = settings(f"[workload.a]\n{OPEN}writers = 3\n[workload.b]\n{OPEN}").warnings
    assert own == ('workload.a.writers has no effect: it needs arrivals = "closed" or "triggered"',)
    trigger = "arrivals = 'triggered'\ninterval_ms = 5_000\n"
    shared = "[transaction]\nthink.value = 5\nwriters = 2\n"
    found = settings(f"{shared}[workload.a]\n{OPEN}[workload.b]\n{trigger}").warnings
    assert found == ('transaction.think has no effect: it needs arrivals = "closed"',)


def test_a_shared_key_that_every_class_replaces_is_named() -> None:
    found = settings(f"transaction.retry = 2\n[workload.a]\nretry = 1\n{OPEN}").warnings
    assert found == ("transaction.retry has no effect: every class has its own",)


def test_a_single_class_has_the_metrics_of_the_short_form_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(
        f"simulation.duration_ms = 60_000\nstorage.provider = 's3'\n[transaction]\n{OPEN}", encoding="utf-8"
    )
    result = CliRunner().invoke(app, ["run", str(file), "--metrics-only", "--json"])
    names = json.loads(result.stdout)["metrics"]
    assert not [name for name in names if name.startswith(("classes.", "tables."))]


def test_the_fleet_is_printed_by_class_and_by_table() -> None:
    fleet = ["run", str(ROOT / "configs" / "fleet.toml"), "--metrics-only", "--set", "simulation.duration_ms=1_200_000"]
    text = CliRunner().invoke(app, fleet).output
    for word in ("streams", "compaction", "hottest tables", "table 0"):
        assert word in text
    metrics = json.loads(CliRunner().invoke(app, [*fleet, "--json"]).stdout)["metrics"]
    total = metrics["classes.streams.committed_per_s"]["mean"] + metrics["classes.compaction.committed_per_s"]["mean"]
    assert total == pytest.approx(metrics["committed_per_s"]["mean"])
    by_table = sum(
        found["mean"] for name, found in metrics.items() if name.startswith("tables.") and "committed" in name
    )
    assert by_table == pytest.approx(metrics["committed_per_s"]["mean"])
