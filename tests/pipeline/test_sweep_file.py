"""Sweep files: their meaning, and the errors of invalid ones."""

from pathlib import Path

import pytest

from endive.errors import ConfigurationError
from endive.pipeline.sweep_file import ExperimentGroup, load_group, parse_group

BASE = """
[configuration.storage]
provider = "s3"
[configuration.transaction]
inter_arrival = { distribution = "exponential", scale = 500 }
"""


def group(text: str, *overrides: str) -> ExperimentGroup:
    return parse_group(text + BASE, "groups/some.toml", overrides)


def errors_of(text: str, *overrides: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        group(text, *overrides)
    return str(caught.value)


def test_a_grid_is_every_combination_the_last_key_varying_fastest() -> None:
    experiments = group('[grid]\n"storage.provider" = ["s3", "gcp"]\n"catalog.num_tables" = [1, 2, 3]').experiments
    assert [tuple(experiment.parameters.values()) for experiment in experiments] == [
        ("s3", 1), ("s3", 2), ("s3", 3), ("gcp", 1), ("gcp", 2), ("gcp", 3),
    ]  # fmt: skip
    assert experiments[4].settings.values.storage.provider == "gcp"
    assert experiments[4].settings.values.catalog.num_tables == 2


def test_zipped_columns_go_row_by_row() -> None:
    experiments = group('[zip]\n"storage.provider" = ["s3", "gcp"]\n"catalog.num_tables" = [1, 2]').experiments
    assert [tuple(experiment.parameters.values()) for experiment in experiments] == [("s3", 1), ("gcp", 2)]


def test_listed_variations_may_differ_in_their_keys() -> None:
    experiments = group('[[list]]\n"catalog.num_tables" = 7\n[[list]]\n"transaction.retry" = 3').experiments
    assert [dict(experiment.parameters) for experiment in experiments] == [
        {"catalog.num_tables": 7},
        {"transaction.retry": 3},
    ]


def test_list_zip_and_grid_are_combined() -> None:
    text = (
        '[[list]]\n"transaction.retry" = 1\n[[list]]\n"transaction.retry" = 2\n'
        '[zip]\n"storage.provider" = ["s3", "gcp"]\n[grid]\n"catalog.num_tables" = [1, 2, 3]'
    )
    swept = group(text)
    assert len(swept.experiments) == 2 * 2 * 3
    assert swept.varied == ("transaction.retry", "storage.provider", "catalog.num_tables")


def test_a_key_may_be_written_with_or_without_quotes() -> None:
    quoted = group('[grid]\n"catalog.num_tables" = [1, 2]')
    bare = group("[grid]\ncatalog.num_tables = [1, 2]")
    assert [dict(experiment.parameters) for experiment in quoted.experiments] == [
        dict(experiment.parameters) for experiment in bare.experiments
    ]


def test_a_table_replaces_the_bases_table_as_a_whole() -> None:
    text = '[grid]\n"transaction.operation_types" = [{ fast_append = 1.0 }, { validated_overwrite = 1.0 }]'
    mixes = [experiment.settings.values.transaction.operation_types for experiment in group(text).experiments]
    assert [(mix.fast_append, mix.validated_overwrite) for mix in mixes] == [(1.0, 0.0), (0.0, 1.0)]


def test_a_sweep_that_varies_nothing_is_its_base() -> None:
    assert [dict(experiment.parameters) for experiment in group("").experiments] == [{}]


def test_the_base_may_be_a_file_seen_from_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('[storage]\nprovider = "gcp"\n[transaction]\ninter_arrival = { scale = 90 }\n')
    (tmp_path / "sweeps").mkdir()
    path = tmp_path / "sweeps" / "own.toml"
    path.write_text(
        'base = "../base.toml"\n[configuration.catalog]\nnum_tables = 4\n[grid]\n"transaction.retry" = [1, 2]\n'
    )

    swept = load_group(str(path))

    assert swept.name == "own"
    assert {experiment.settings.values.catalog.num_tables for experiment in swept.experiments} == {4}
    assert {experiment.settings.values.storage.provider for experiment in swept.experiments} == {"gcp"}


def test_overrides_go_into_every_experiment() -> None:
    swept = group('[grid]\n"catalog.num_tables" = [1, 2]', "transaction.retry=3")
    assert {experiment.settings.values.transaction.retry for experiment in swept.experiments} == {3}


def test_a_key_that_the_sweep_varies_cannot_be_overridden() -> None:
    message = errors_of('[grid]\n"transaction.inter_arrival.scale" = [1, 2]', "transaction.inter_arrival={ value = 3 }")
    assert "the sweep varies transaction.inter_arrival.scale" in message


def test_the_key_of_the_arrivals_sets_the_offered_load() -> None:
    text = '[grid]\n"transaction.inter_arrival.scale" = [20, 5000]\n"catalog.num_tables" = [1, 2]'
    swept = group(text)
    assert (swept.load_key, swept.load_unit) == ("transaction.inter_arrival.scale", "arrivals/s")
    assert group('[grid]\n"catalog.num_tables" = [1, 2]').load_key is None


def test_writers_are_the_offered_load_of_a_closed_loop() -> None:
    text = (
        '[configuration.storage]\nprovider = "s3"\n[configuration.transaction]\narrivals = "closed"\n'
        '[grid]\n"transaction.writers" = [1, 2]'
    )
    swept = parse_group(text, "closed.toml")
    assert (swept.load_key, swept.load_unit) == ("transaction.writers", "writers")


ERRORS = {
    'titel = "x"': "titel: unknown key; did you mean 'title'?",
    'keep = "all"': "keep: 'all' is not one of",
    'seeds = "5..1"': "'5..1': expected A at most B",
    'seeds = "five"': "expected A..B, such as 1..5",
    "seeds = [1, 1]": "a seed is given twice",
    '[grid]\n"storage.providr" = ["s3"]': "no such configuration key; did you mean 'storage.provider'?",
    '[grid]\n"catalog.num_tables" = 3': "expected a list of values, but found 3",
    '[grid]\n"catalog.num_tables" = []': "expected a list of values, but found []",
    '[grid]\n"catalog.num_tables" = [1, 1]': "a value is given twice",
    '[grid]\n"simulation.seed" = [1, 2]': "seeds are given by `seeds`",
    '[grid]\n"catalog.num_tables" = [1]\n[zip]\n"catalog.num_tables" = [1]': "is varied in two places",
    '[zip]\n"catalog.num_tables" = [1]\n"transaction.retry" = [1, 2]': "columns must be of one length",
    '[grid]\n"storage.provider" = ["s3", "s4"]': "no profile 's4'",
    '[grid]\n"catalog.num_tables" = [1, -1]': "expected at least 1, but found -1",
    'base = "nowhere.toml"': "cannot be read",
    "[grid]\ntransaction.retry = [" + ", ".join(map(str, range(400))) + "]\n"
    '"catalog.num_tables" = [' + ", ".join(map(str, range(1, 401))) + "]": "160,000 experiments; at most 100,000",
    "no toml": "not valid TOML",
}


@pytest.mark.parametrize("text", ERRORS, ids=lambda text: text[:30].replace("\n", " "))
def test_an_invalid_sweep_is_refused_with_the_place_of_the_error_and_a_remedy(text: str) -> None:
    assert ERRORS[text] in errors_of(text + "\n")


def test_all_errors_are_reported_at_once_and_an_error_of_the_base_only_once() -> None:
    text = '[grid]\n"catalog.num_tables" = [1, -1, -2]\n"storage.provider" = ["s3", "s4"]'
    message = errors_of(text)
    assert message.count("no profile 's4'") == 1
    assert "found -1" in message
    assert "found -2" in message


def test_the_published_groups_are_1610_experiments() -> None:
    places = sorted(Path("configs/sweeps/published").glob("*.toml"))
    groups = {place.stem: load_group(str(place)) for place in places}

    assert {name: len(swept.experiments) for name, swept in groups.items()} == {
        "catalog_latency_fast_append": 70,
        "catalog_latency_mix": 70,
        "fast_append": 10,
        "mix": 80,
        "provider_tables_mix": 900,
        "tables_fast_append": 240,
        "tables_mix": 240,
    }
    assert {swept.seeds for swept in groups.values()} == {(1, 2, 3, 4, 5)}
    assert {swept.load_key for swept in groups.values()} == {"transaction.inter_arrival.scale"}
    assert not any(swept.warnings for swept in groups.values())


def test_the_success_target_is_a_key_of_the_file() -> None:
    assert group("").success_target == 0.95
    assert group("success = 0.99\n").success_target == 0.99
    assert "success: expected at most 1, but found 95" in errors_of("success = 95\n")


@pytest.mark.parametrize("name", ["members", "experiments"])
def test_a_wrong_name_of_the_list_is_corrected(name: str) -> None:
    message = errors_of(f'[[{name}]]\n"catalog.num_tables" = 1\n')
    assert f"{name}: unknown key; experiments are listed one by one in [[list]] tables" in message
