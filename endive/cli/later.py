"""Groups of commands that are imported when one of them is asked for, because that takes long."""

from collections.abc import MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group


def later(module: str, help_text: str) -> typer.Typer:
    """Return the group of commands that is `app` in a module; `help_text` is what is said of it before."""

    class Later(TyperGroup):
        _loaded: MutableMapping[str, Any] | None = None

        @property
        def commands(self) -> MutableMapping[str, Any]:
            if self._loaded is None:
                self._loaded = get_group(import_module(module).app).commands
            return self._loaded

        @commands.setter
        def commands(self, _none: MutableMapping[str, Any]) -> None:
            """Typer has found none to put here."""

    return typer.Typer(cls=Later, no_args_is_help=True, help=help_text)
