"""Whether `endive serve` traces its requests: by `--traces`, or by OpenTelemetry's variables."""

import os
from typing import TYPE_CHECKING

from endive.cli.console import warn
from endive.errors import ConfigurationError
from endive.extras import MissingExtraError, naming_extra

if TYPE_CHECKING:
    from endive.server.tracing import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER = "OTEL_TRACES_EXPORTER"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"


def opened_tracing(url: str | None, scheme: str) -> "Tracing | None":
    """Return what makes spans of requests; None without `--traces` and without a collector in the environment.

    The environment may be that of many services: if it asks for traces and the packages are missing, that is a warning.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if url is None and not _is_asked_for():
        return None
    try:
        with naming_extra():
            from endive.server.tracing import to_collector  # noqa: PLC0415 - only with the extra
    except MissingExtraError as error:
        if url is not None:
            raise
        warn((f"no traces, although the environment asks for them: {error}",))
        return None
    return to_collector(url, scheme)


def _is_asked_for() -> bool:
    """Whether OpenTelemetry's variables name a collector; refuses those that ask for something else."""
    exporter = os.environ.get(EXPORTER, "")
    if exporter == "none" or not (exporter or any(os.environ.get(name) for name in ENDPOINTS)):
        return False
    problems = [] if exporter in ("", "otlp") else [f"{EXPORTER} is {exporter!r}: there are otlp and none"]
    protocol = next((value for name in PROTOCOLS if (value := os.environ.get(name))), PROTOCOL)
    if protocol != PROTOCOL:
        problems.append(f"traces are sent by {PROTOCOL} only, and not by {protocol!r}, which the environment asks for")
    if problems:
        raise ConfigurationError("endive serve", problems)
    return True
