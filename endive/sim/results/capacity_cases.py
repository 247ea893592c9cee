"""The cases of a search for capacity: the configuration with every combination of the values to vary."""

import tomllib
from collections.abc import Mapping, Sequence
from itertools import product

from endive.errors import ConfigurationError, ErrorCollector
from endive.sim.config.configuration import Overrides, Settings, Source, inline_toml, override_texts, settings_of
from endive.sim.results.axis import axis_of
from endive.sim.results.capacity import load_of

VARY = "--vary"
Vary = Mapping[str, Sequence[object]] | Sequence[str]
"""Values to search one by one: dotted keys to lists of values, or `KEY=A,B` texts. Several keys: every combination."""
Cases = Mapping[str, Settings]
"""Configurations by the values that distinguish them; without any, by label."""


def cases_of(config: Source, overrides: Overrides = (), vary: Vary = (), over: str | None = None) -> Cases:
    """Load the configuration with every combination of values; all errors are reported before anything runs."""
    pairs = vary.items() if isinstance(vary, Mapping) else map(parse_vary, vary)
    choices = [[f"{key}={_text(value)}" for value in values] for key, values in pairs]
    cases: dict[str, Settings] = {}
    errors = ErrorCollector()
    for chosen in product(*choices):
        with errors.collected():
            settings = _case(config, overrides, chosen, over)
            cases[" ".join(chosen) or settings.label] = settings
    errors.raise_for(VARY)
    return cases


def _text(value: object) -> str:
    return value if isinstance(value, str) else inline_toml(value)


def _case(config: Source, overrides: Overrides, chosen: tuple[str, ...], over: str | None) -> Settings:
    """Load one combination; errors that it does not have without `chosen` are attributed to `--vary`."""
    try:
        settings = settings_of(config, [*override_texts(overrides), *chosen])
        _ = load_of(settings) if over is None else axis_of(settings, over)
    except ConfigurationError as error:
        if not chosen:
            raise
        raise error.after(_errors_without(config, overrides, over), VARY) from error
    return settings


def _errors_without(config: Source, overrides: Overrides, over: str | None) -> ConfigurationError | None:
    try:
        _case(config, overrides, (), over)
    except ConfigurationError as error:
        return error
    return None


def parse_vary(text: str) -> tuple[str, list[str]]:
    """Return the key and its values: TOML, separated by commas; bare words need no quotes."""
    key, equals, values = text.partition("=")
    try:
        parts = [inline_toml(value) for value in tomllib.loads(f"values = [{values}]")["values"]]
    except tomllib.TOMLDecodeError:
        parts = [part.strip() for part in values.split(",") if part.strip()]
    if not equals or not key or not parts:
        raise ConfigurationError(VARY, [f"{text!r}: expected KEY=A,B such as catalog.num_tables=1,10,20"])
    return key, parts
