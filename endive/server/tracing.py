"""Traces by OpenTelemetry: a span for each request, and below it one for each stage of its commit.

The layers below report stages (`endive.stages`), which become spans when the request has been answered: neither the
store nor the catalog knows OpenTelemetry, and without tracing this module is not imported. Attributes of requests are
those of OpenTelemetry's semantic conventions for HTTP servers; Endive's own begin with `endive.`.

A caller's `traceparent` makes the request a part of the caller's trace. Load balancers' probes and the metrics are not
traced.
"""

import os
from collections.abc import Callable
from time import monotonic, time_ns
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from endive import __version__
from endive.closing import Closing
from endive.errors import ConfigurationError
from endive.server.http import Request, Response
from endive.server.operation_stage import OPERATION, ROUTE
from endive.stages import Stage, recording

UNTRACED = ("/health", "/ready", "/metrics")
PATH = "/v1/traces"
"""Where a collector takes spans, if `--traces` names only the collector."""
SERVICE = "endive"
METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
"""Methods that a span names; others are `_OTHER`, as the semantic conventions have it."""


class Tracing(Closing):
    """Makes spans of requests. Safe to use from many threads."""

    def __init__(self, provider: TracerProvider, scheme: str = "http") -> None:
        self._provider = provider
        self._scheme = scheme
        self._tracer = provider.get_tracer("endive.server", __version__)
        self._unix_ns = time_ns() - round(monotonic() * 1e9)
        """When the clock of stages began."""

    def answered(self, answer: Callable[[Request], Response], request: Request, queued_s: float) -> Response:
        """Answer a request that has waited for a thread since `queued_s`, and make its spans."""
        if request.path in UNTRACED:
            return answer(request)
        context = extract(request.headers)
        attributes = {"url.scheme": self._scheme, **_of_request(request)}
        span = self._tracer.start_span(
            request.method, context, SpanKind.SERVER, attributes, start_time=self._unix(queued_s)
        )
        if not span.is_recording():
            return answer(request)
        began_s = monotonic()
        try:
            with recording() as stages:
                response = answer(request)
        except BaseException as error:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR))
            span.end()
            raise
        stages.append(Stage("request.queue", queued_s, began_s))
        self._describe(span, request, response, stages)
        span.end()
        return response

    def _describe(self, span: Span, request: Request, response: Response, stages: list[Stage]) -> None:
        """Add the answer and the stages of a request to its span."""
        span.set_attribute("http.response.status_code", response.status)
        if response.status >= 500:
            span.set_attribute("error.type", str(response.status))
            span.set_status(Status(StatusCode.ERROR))
        below = set_span_in_context(span, Context())
        for stage in sorted(stages, key=lambda one: (one.began_s, one.ended_s)):
            if stage.name == OPERATION:
                if ROUTE in stage.facts:
                    span.update_name(f"{request.method} {stage.facts[ROUTE]}")
                span.set_attributes(_attributes(stage))
                continue
            child = self._tracer.start_span(
                stage.name, below, SpanKind.INTERNAL, _attributes(stage), start_time=self._unix(stage.began_s)
            )
            child.end(self._unix(stage.ended_s))

    def _unix(self, seconds: float) -> int:
        return self._unix_ns + round(seconds * 1e9)

    def close(self) -> None:
        """Send the spans that wait. Idempotent."""
        self._provider.shutdown()


def to_collector(url: str | None, scheme: str = "http") -> Tracing:
    """Return tracing that sends spans by OTLP over HTTP: to a collector, or where the environment says.

    Everything else is configured by OpenTelemetry's own variables: the service's name, sampling, headers, batches.
    """
    given = {SERVICE_VERSION: __version__}
    if "OTEL_SERVICE_NAME" not in os.environ and SERVICE_NAME not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        given[SERVICE_NAME] = SERVICE
    provider = TracerProvider(resource=Resource.create(given), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=_endpoint(url))))
    return Tracing(provider, scheme)


def _endpoint(url: str | None) -> str | None:
    """Return where a collector takes spans; None: the environment says it."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError("--traces", [f"{url!r} is not the URL of a collector, such as http://127.0.0.1:4318"])
    return url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{PATH}"


def _of_request(request: Request) -> dict[str, AttributeValue]:
    """Return the attributes of a request, by OpenTelemetry's semantic conventions. No token is among them."""
    found: dict[str, AttributeValue] = {
        "http.request.method": request.method if request.method in METHODS else "_OTHER",
        "url.path": request.path,
        "endive.request.id": request.id,
    }
    if request.client:
        found["client.address"] = request.client
    if "user-agent" in request.headers:
        found["user_agent.original"] = request.headers["user-agent"]
    host, _, port = request.headers.get("host", "").rpartition(":")
    if port.isascii() and port.isdigit():
        found["server.address"], found["server.port"] = host, int(port[:5])
    elif "host" in request.headers:
        found["server.address"] = request.headers["host"]
    return found


def _attributes(stage: Stage) -> dict[str, AttributeValue]:
    """Return the facts of a stage as attributes; those of the layers below get the prefix `endive.`."""
    known = {name: value for name, value in stage.facts.items() if value is not None}
    return {name if name == ROUTE else f"endive.{name}": value for name, value in known.items()}
