"""Trust labels on figures, prices beside them, and other assumptions of the model (`--uncertainty`)."""

import json

import pytest

import endive
from endive.errors import ConfigurationError
from endive.sim.config.configuration import parse_configuration
from endive.sim.cost import ICEBERG, PYICEBERG, SPEC
from endive.sim.engines import simulate
from endive.sim.results.labels import explained, mark, weakest
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.trust import trust_of
from endive.sim.results.uncertainty import AS_CONFIGURED, assumptions_of
from tests.engine.test_capacity_over import CLOSED, FLEET, fleet
from tests.surfaces.conftest import endive as endive_fixture  # noqa: F401 - a fixture
from tests.surfaces.files import SMALL, CommandLine

CHECKED = """
    simulation.duration_ms = 60_000
    storage = { provider = "s3", profiles = "measured" }
    catalog.preset = "object"
    transaction = { cost_model = "pyiceberg", inter_arrival = { scale = 1000 }, runtime = { value = 500 } }
    """


# Trust.


def test_a_figure_is_as_trustworthy_as_the_weakest_part() -> None:
    assert trust_of(parse_configuration(CHECKED)) == "partly"
    glue = parse_configuration(CHECKED, overrides=["catalog.preset=glue"])
    assert trust_of(glue) == "unchecked"
    assert weakest({}) == "unchecked"
    assert mark(glue.trust) == " †"
    assert mark(parse_configuration(CHECKED).trust) == ""
    assert explained([glue.trust]) == [f"† catalog glue: unchecked: {glue.trust['catalog glue']['checked']}"]


def test_a_contradicted_law_is_called_so() -> None:
    azure = parse_configuration(CHECKED, overrides=["storage.provider=azure"])
    (note,) = explained([azure.trust])
    assert note.startswith("† provider azure: contradicted: CAS refuses")


def test_a_run_marks_its_figures_only_if_a_part_was_not_checked() -> None:
    plain, doubtful = (endive.run(text, rows=False) for text in (CHECKED, CLOSED))
    assert "†" not in repr(plain)
    assert all(heading.endswith(" †") for grid in doubtful.grids() for heading in grid.headings[1:])
    assert "† cost model spec: unchecked" in repr(doubtful)
    assert "† cost model spec: unchecked" in doubtful._repr_html_()


def test_a_comparison_has_labels_prices_and_what_each_side_is(endive_fixture: CommandLine) -> None:  # noqa: F811
    endive_fixture.write("checked.toml", CHECKED)
    words = ("compare", "small.toml", "checked.toml", "--seeds", "1..2")
    shown, document = endive_fixture(*words).out, json.loads(endive_fixture(*words, "--json").out)
    assert "requests, $ per million commits" in shown
    assert "object catalog, granularity catalog" in shown
    assert "† cost model spec: unchecked" in shown
    assert document["metrics"][DOLLARS]["b"]["mean"] > 0
    success = document["metrics"]["success"]
    assert [success[side]["trust"] for side in ("a", "b", "difference")] == ["unchecked", "partly", "unchecked"]
    assert document["about"]["b"]["catalog"] == "object catalog, granularity catalog"


def test_json_of_a_run_labels_every_figure(endive_fixture: CommandLine) -> None:  # noqa: F811
    document = json.loads(endive_fixture("run", "small.toml", "--json").out)
    assert {found["trust"] for found in document["metrics"].values()} == {"unchecked"}
    assert document["trust"]["figures"] == "unchecked"
    assert (document["catalog"], document["granularity"]) == ("instant", "catalog")


# Reuse of manifests.


def test_manifests_can_be_written_again_or_reused() -> None:
    assert (SPEC.reuses_manifests, ICEBERG.reuses_manifests, PYICEBERG.reuses_manifests) == (False, True, False)
    assert SPEC.with_reuse(False) is SPEC
    assert SPEC.with_reuse(True).row("fast_append").retry.manifest_file_writes == 0
    assert ICEBERG.with_reuse(False).row("rewrite").retry.manifest_file_writes == 1
    with pytest.raises(ConfigurationError, match="PyIceberg writes a manifest at each attempt"):
        parse_configuration(CHECKED, overrides=["transaction.manifest_reuse=true"])


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_a_retry_that_writes_its_manifest_again_makes_one_more_request(engine: str) -> None:
    def writes(reuse: str) -> tuple[int, int]:
        settings = fleet(
            "simulation.duration_ms=300_000",
            *(f"workload.{name}.manifest_reuse={reuse}" for name in ("streams", "compaction")),
        )
        counters = simulate(settings, 1, engine).counters  # type: ignore[arg-type]
        return counters["manifest_file_writes"], counters["false_conflicts"]

    (reused, _), (written, conflicts) = writes("true"), writes("false")
    assert written > reused
    assert written - reused <= conflicts


# Other assumptions.


def test_each_assumption_is_changed_alone() -> None:
    found = assumptions_of(fleet())
    assert list(found) == ["CAS decided at half", "manifests rewritten", "granularity catalog"]
    rewritten = found["manifests rewritten"].values
    assert {section.manifest_reuse for section in rewritten.workload.values()} == {False}
    assert rewritten.catalog == fleet().values.catalog
    assert "manifests reused" in assumptions_of(parse_configuration(CLOSED))
    assert not [name for name in assumptions_of(parse_configuration(CHECKED)) if name.startswith("manifests")]


def test_a_run_shows_its_metrics_under_other_assumptions() -> None:
    found = endive.run(FLEET, seeds=[1, 2], rows=False, uncertainty=True)
    by = found.ranges["success"]
    assert list(by) == [AS_CONFIGURED, "CAS decided at half", "manifests rewritten", "granularity catalog"]
    assert by[AS_CONFIGURED] == found.metrics["success"].mean
    retries = found.ranges["retries_mean"]
    assert retries["granularity catalog"] > retries[AS_CONFIGURED]
    assert "classes.compaction.success" in found.ranges
    assert "model uncertainty" in repr(found)
    assert endive.run(FLEET, rows=False).ranges == {}


def test_a_capacity_is_searched_under_other_assumptions() -> None:
    found = endive.capacity(CLOSED, 0.9, over="transaction.writers", seeds=[1, 2], tolerance=0.2, uncertainty=True)
    (case,) = found.answers
    assert set(found.assumed[case]) == set(assumptions_of(found.cases[case]))
    assert "under other assumptions of the model" in found.sentence(case)
    (document,) = found.document().values()
    assert "granularity table" in str(document["uncertainty"])
    assert len(found.grids()[0].rows) == 1 + len(found.assumed[case])


def test_advice_that_another_assumption_turns_has_low_confidence() -> None:
    found = endive.advise(FLEET, goal="compaction.success", seeds="1..3", kinds=["partial progress"], uncertainty=True)
    helping = [one for one in found.advice if one.assumed]
    assert helping
    for one in helping:
        turned = any(effect.mean < 0 for effect in one.assumed.values())
        assert (one.confidence == "low") is turned
        assert set(one.assumed) <= set(assumptions_of(fleet()))


def test_the_price_is_kept_with_a_result(endive_fixture: CommandLine) -> None:  # noqa: F811
    endive_fixture.write("priced.toml", SMALL.replace('type = "instant"', 'type = "cas"'))
    runs = json.loads(endive_fixture("run", "priced.toml", "--json").out)["runs"]
    assert DOLLARS in runs[0]
