"""`endive advise`: interventions, their ranking, and what is printed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import endive
from endive.cli.app import app
from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, parse_configuration
from endive.sim.results.advice_results import AdviceResults
from endive.sim.results.interventions import Intervention, interventions_of
from tests.engine.test_capacity_over import FLEET, fleet

ALL_KINDS = {
    "retries",
    "backoff",
    "commit interval",
    "tables",
    "store class",
    "catalog",
    "group commit",
    "compaction",
    "partial progress",
}


def of_kind(settings: Settings, kind: str) -> list[Intervention]:
    return [one for one in interventions_of(settings) if one.kind == kind]


# Interventions.


pytestmark = pytest.mark.xdist_group("advice")
"""One process computes the advice that several tests look at."""


def test_a_fleet_has_interventions_of_every_kind_and_all_of_them_apply() -> None:
    settings = fleet()
    found = interventions_of(settings)
    assert {one.kind for one in found} == ALL_KINDS
    digests = [one.applied(settings).experiment_hash() for one in found]
    assert settings.experiment_hash() not in digests


def test_a_change_of_the_catalog_replaces_the_keys_that_a_preset_decides() -> None:
    glue = next(one for one in of_kind(fleet(), "catalog") if one.values["catalog.preset"] == "glue")
    changed = glue.applied(fleet('catalog={ num_tables=4, conflict_granularity="catalog", type="cas" }'))
    assert (changed.values.catalog.type, changed.values.catalog.conflict_granularity) == ("service", "table")
    assert changed.values.catalog.num_tables == 4


def test_more_tables_divide_the_shares() -> None:
    more, fewer = of_kind(fleet(), "tables")
    assert more.applied(fleet()).values.workload["streams"].tables.shares == (2, 2, 1.5, 1.5, 1, 1, 0.5, 0.5)
    assert fewer.applied(fleet()).values.workload["streams"].tables.shares == (7, 3)
    assert "2 tables instead of 4" in fewer.advice


def test_a_coarse_catalog_can_be_made_finer_and_a_fine_one_not_coarser() -> None:
    coarse = fleet("catalog.conflict_granularity=catalog")
    (finer,) = of_kind(coarse, "granularity")
    assert finer.applied(coarse).values.catalog.conflict_granularity == "table"
    assert of_kind(fleet(), "granularity") == []
    tracked = fleet("workload.streams.partitions.per_txn=1", "catalog.partitions.num_partitions=8")
    (finest,) = of_kind(tracked, "granularity")
    assert finest.values["catalog.conflict_granularity"] == "partition"


def test_appends_that_merge_can_be_fast() -> None:
    merging = fleet("workload.streams.operation_types={ append = 3, overwrite = 1 }")
    (fast,) = of_kind(merging, "manifest reuse")
    mix = fast.applied(merging).values.workload["streams"].operation_types
    assert (mix.fast_append, mix.append, mix.overwrite) == (3, 0, 1)


def test_only_what_can_be_changed_is_tried() -> None:
    text = """
        storage = { provider = "gcp", profiles = "measured" }
        transaction = { inter_arrival = { scale = 1000 }, retry = 40 }
        """
    kinds = {one.kind for one in interventions_of(parse_configuration(text))}
    assert kinds.isdisjoint({"retries", "store class", "compaction", "partial progress"})
    assert {"backoff", "commit interval", "group commit"} <= kinds


# Advice.


@pytest.fixture(scope="module")
def advice() -> AdviceResults:
    return endive.advise(
        FLEET, goal="compaction.success", seeds="1..3", kinds=["retries", "partial progress", "commit interval"]
    )


def test_interventions_are_ranked_by_their_effect(advice: AdviceResults) -> None:
    gains = [one.gain or 0.0 for one in advice.helping]
    assert gains == sorted(gains, reverse=True)
    assert gains
    verdicts = [one.verdict for one in advice.advice]
    order = ["helps", "unclear", "no effect", "hurts"]
    assert [verdict == "helps" for verdict in verdicts] == sorted([verdict == "helps" for verdict in verdicts])[::-1]
    assert set(verdicts) <= set(order)
    best = advice.advice[0]
    assert best.after["compaction.success"].mean > advice.today["compaction.success"].mean


def test_an_intervention_that_touches_nothing_of_the_goal_has_no_effect_at_all() -> None:
    """With common random numbers, a difference of exactly zero shows that the transactions are the same."""
    quiet = endive.advise(FLEET, goal="offered_per_s", seeds="1..2", kinds=["retries"])
    streams = [one for one in quiet.advice if "streams" in one.intervention.advice]
    assert streams[0].difference["transactions"].mean == 0.0
    assert streams[0].difference["transactions"].half_width == 0.0
    assert streams[0].verdict == "no effect"
    assert quiet.sentences() == ["Nothing that was tried improves offered_per_s clearly."]


def test_advice_is_put_into_sentences_with_side_effects_and_confidence(advice: AdviceResults) -> None:
    first = advice.sentences()[0]
    assert first.startswith("1. ")
    assert "compaction.success rises by " in first
    assert " points to " in first
    assert "requests per commit" in first
    assert "dollars per million commits" in first
    assert "Confidence: high." in first
    assert any("Not counted: data becomes visible later" in sentence for sentence in advice.sentences())


def test_a_part_that_was_not_checked_lowers_the_confidence() -> None:
    found = endive.advise(FLEET, goal="p99_ms", seeds="1..3", kinds=["catalog", "store class"])
    clear = [one for one in found.advice if one.confidence != "low"]
    assert {one.confidence for one in clear if one.intervention.kind == "store class"} <= {"high"}
    jdbc = next(one for one in found.advice if "`jdbc`" in one.intervention.advice)
    assert jdbc.confidence == "medium"
    assert any("catalog jdbc: unchecked: " in note for note in found.notes)
    assert found.to_arrow().num_rows == len(found.advice)


def test_the_goal_is_what_fails_most_unless_it_is_given() -> None:
    failing = endive.advise(FLEET, seeds=1, kinds=["tables"])
    assert failing.goal == "compaction.success"
    calm = endive.advise(FLEET, seeds=1, kinds=["tables"], overrides={"workload.streams.interval_ms": 600_000})
    assert calm.goal in ("p99_ms", "compaction.success")
    assert (calm.goal == "p99_ms") is (calm.today["compaction.success"].mean > 0.999)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"goal": "compaction.sucess"}, "compaction.sucess: no such metric; did you mean 'compaction.success'"),
        ({"kinds": ["retry"]}, "retry: no such kind here"),
    ],
)
def test_a_wrong_goal_or_kind_is_refused_before_anything_runs(options: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        endive.advise(FLEET, **options)  # type: ignore[arg-type]
    assert expected in str(caught.value)


def test_the_command_prints_sentences_a_table_and_json(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET, encoding="utf-8")
    words = ["advise", str(file), "--seeds", "1..2", "--kind", "partial progress", "--goal", "compaction.success"]
    shown = CliRunner().invoke(app, words)
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert shown.exit_code == 0
    assert "fleet: compaction.success is " in shown.stdout
    assert "as it is" in shown.stdout
    assert "† cost model iceberg: unchecked" in shown.stdout
    assert [one["rank"] for one in document["advice"]] == [1, 2]
    assert {one["kind"] for one in document["advice"]} == {"partial progress"}
    assert document["advice"][0]["after"]["p99_ms"]["trust"] == "unchecked"
    assert (document["catalog"], document["granularity"]) == ("cas", "table")
