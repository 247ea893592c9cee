"""Plans: names of experiments, bins, shared runs."""

import pytest

from endive.errors import ConfigurationError
from endive.pipeline.cost import run_seconds
from endive.pipeline.plan import BIN_SECONDS, Plan, experiment_name
from endive.pipeline.sweep_file import ExperimentGroup, parse_group
from endive.sim.config.configuration import parse_configuration

BASE = """
[configuration.storage]
provider = "s3"
[configuration.transaction]
inter_arrival = { distribution = "exponential", scale = 500 }
"""


def group(text: str, name: str = "some") -> ExperimentGroup:
    return parse_group(text + BASE, f"{name}.toml")


def plan_of(*texts: str) -> Plan:
    return Plan(tuple(group(text, f"group_{number}") for number, text in enumerate(texts)))


CONFIGURATION = '[storage]\nprovider = "s3"\n[transaction]\ninter_arrival = { scale = 500 }\n'


def name(*overrides: str) -> str:
    return experiment_name(parse_configuration(CONFIGURATION, "x.toml", overrides))


@pytest.mark.parametrize(
    "change",
    ["catalog.num_tables=2", "simulation.trim_start_ms=1000", "storage.profiles=measured", "transaction.retry=3"],
)
def test_a_changed_configuration_has_another_name(change: str) -> None:
    assert name(change) != name()


def test_windows_of_equal_length_at_different_times_have_different_names() -> None:
    early, late = (
        name(f"simulation.trim_start_ms={start}", f"simulation.trim_end_ms={end}")
        for start, end in ((1000, 2000), (2000, 1000))
    )
    assert early != late


@pytest.mark.parametrize("change", ["simulation.seed=7", "experiment.label=other", "catalog.num_tables=1"])
def test_a_key_that_changes_no_metric_does_not_change_the_name(change: str) -> None:
    assert name(change) == name()


def test_runs_that_groups_share_are_run_once() -> None:
    plan = plan_of('[grid]\n"catalog.num_tables" = [1, 2]', '[grid]\n"transaction.retry" = [10, 11]')
    assert plan.requested == 20
    assert len(plan.runs) == 15
    assert len(set(plan.runs)) == 15


def test_every_run_is_in_exactly_one_bin_the_heaviest_first() -> None:
    plan = plan_of(
        '[grid]\n"transaction.inter_arrival.scale" = [20, 50, 100, 1000, 5000]\n"catalog.num_tables" = [1, 9]'
    )
    bins = plan.bins(plan.runs, cores=2)

    assert sorted(run for one in bins for run in one.runs) == sorted(plan.runs)
    heaviest = [max(plan.seconds[experiment] for experiment, _ in one.runs) for one in bins]
    assert heaviest == sorted(heaviest, reverse=True)
    assert all(one.seconds < BIN_SECONDS[1] + heaviest[0] for one in bins)
    assert all(one.seconds == pytest.approx(plan.cost(one.runs)) for one in bins)


def test_runs_that_cost_more_than_estimated_get_smaller_bins() -> None:
    plan = plan_of('[grid]\n"transaction.inter_arrival.scale" = [20, 50, 100]\n"catalog.num_tables" = [1, 2, 3, 5, 9]')
    estimated, measured = (plan.bins(plan.runs, 1, factor) for factor in (1.0, 50.0))

    assert sorted(run for one in measured for run in one.runs) == sorted(plan.runs)
    assert len(measured) > 2 * len(estimated)


def test_done_runs_are_not_planned_again() -> None:
    plan = plan_of('[grid]\n"catalog.num_tables" = [1, 2]')
    done = set(plan.runs[:3])
    assert set(plan.remaining(done)) == set(plan.runs) - done
    assert plan.bins([], 2) == []


def test_higher_load_and_validation_cost_more() -> None:
    def seconds(*overrides: str) -> float:
        return run_seconds(parse_configuration(CONFIGURATION, "x.toml", overrides))

    assert seconds("transaction.inter_arrival={ scale = 20 }") > 5 * seconds()
    validating = "transaction.operation_types={ validated_overwrite = 1.0 }"
    assert seconds(validating) > seconds("transaction.operation_types={ fast_append = 1.0 }")


def test_groups_that_cannot_go_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two files are called 'some'"):
        Plan((group(""), group("")))
    with pytest.raises(ConfigurationError, match="must have the same `keep`, but some keeps summaries"):
        Plan((group(""), group('keep = "transactions"\n', "other")))


def test_two_variations_that_are_the_same_experiment_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="are the same experiment"):
        plan_of('[[list]]\n"transaction.retry" = 10\n[[list]]\n"catalog.num_tables" = 1')
