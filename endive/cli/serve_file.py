"""The configuration file of `endive serve`: TOML with options by name, and tables for warehouses and properties.

Options of the command line come first, then the environment, then the file: its values are the defaults of options that
are given in neither. Everything that is wrong with a file is said at once, with the key and never with the value, which
may be a secret. Paths are relative to the file.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from endive.errors import ConfigurationError
from endive.wording import suggestion

WAREHOUSES, PROPERTIES = "warehouses", "properties"
KEYS: dict[str, tuple[str, type]] = {
    "host": ("host", str),
    "port": ("port", int),
    "tokens": ("tokens", Path),
    "tls-certificate": ("tls_certificate", Path),
    "tls-key": ("tls_key", Path),
    "create": ("create", bool),
    "threads": ("threads", int),
    "log": ("logs", str),
    "vend-role": ("vend_role", str),
    "sts-endpoint": ("sts_endpoint", str),
    "sign-requests": ("sign_requests", bool),
    "webhook": ("webhook", str),
    "webhook-secret": ("webhook_secret", Path),
    "audit-log": ("audit_log", Path),
    "traces": ("traces", str),
    "endpoint": ("endpoint", str),
}
"""Keys of a file: the options' names, with the parameters of the command and the types of their values."""
WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    str: "a text in quotes",
    Path: "a path in quotes",
}
_META = "endive.serve"


@dataclass(frozen=True)
class FileSettings:
    """The tables of a file."""

    warehouses: Mapping[str, str]
    properties: Mapping[str, str]


def file_settings(context: typer.Context) -> FileSettings:
    """Return the tables of the file that was given; empty ones without a file."""
    found: FileSettings = context.meta.get(_META, FileSettings({}, {}))
    return found


def read_file(context: typer.Context, path: Path | None) -> Path | None:
    """Make a file's values the defaults of the options: the callback of `--config`."""
    if path is None or context.resilient_parsing:
        return path
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error}"]) from error
    problems: list[str] = []
    tables = {name: _texts(content.pop(name, {}), name, problems) for name in (WAREHOUSES, PROPERTIES)}
    defaults: dict[str, Any] = {}
    for key, value in content.items():
        if key not in KEYS:
            problems.append(f"{key}: no such option{suggestion(key, (*KEYS, WAREHOUSES, PROPERTIES))}")
            continue
        parameter, kind = KEYS[key]
        if type(value) is not (str if kind is Path else kind):
            problems.append(f"{key}: must be {WORDS[kind]}")
        else:
            defaults[parameter] = str(path.parent / str(value)) if kind is Path else value
    if problems:
        raise ConfigurationError(str(path), problems)
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta[_META] = FileSettings(tables[WAREHOUSES], tables[PROPERTIES])
    return path


def _texts(found: object, name: str, problems: list[str]) -> dict[str, str]:
    """Return a table of texts; add what is wrong with it."""
    if not isinstance(found, dict):
        problems.append(f"{name}: must be a table, [{name}]")
        return {}
    problems += [f"{name}.{key}: must be a text in quotes" for key, value in found.items() if type(value) is not str]
    return found
