"""Traces: the spans of a request and of the stages of its commit."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from endive.catalog import KVCatalog
from endive.cli.serve_traces import opened_tracing
from endive.errors import ConfigurationError
from endive.server.application import Application
from endive.server.http import Request, Response
from endive.server.tracing import PATH, Tracing, to_collector
from endive.stages import recorded_stages
from tests.packaging.test_extras import endive as endive_without_extras
from tests.server.calls import create_table

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ROUTE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Iterator[Tracing]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with Tracing(provider) as made:
        yield made


def commit(value: str = "1", **headers: str) -> Request:
    body = b'{"updates": [{"action": "set-properties", "updates": {"a": "' + value.encode() + b'"}}]}'
    return Request("POST", "/v1/namespaces/db/tables/events", {}, headers, body, "an-id", "10.0.0.1")


def spans_of(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def test_a_commit_has_a_span_for_each_of_its_stages(
    application: Application, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    create_table(application)

    assert tracing.answered(application.answer, commit(), monotonic()).status == 200

    spans = spans_of(exporter)
    stages = {"request.queue", "commit.queue", "commit.metadata_file", "commit.waiting", "commit.work", "commit.put"}
    assert stages <= set(spans)
    whole = spans[f"POST {ROUTE}"]
    assert whole.kind is SpanKind.SERVER
    began, ended = times(whole)
    for name in stages:
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == whole.context.span_id
        assert began <= times(spans[name])[0] <= times(spans[name])[1] <= ended
    assert times(spans["commit.waiting"])[1] == times(spans["commit.work"])[0]
    assert times(spans["commit.work"])[1] == times(spans["commit.put"])[0]


def test_spans_have_the_attributes_of_the_semantic_conventions_and_endive_s_own(
    application: Application, catalog: KVCatalog, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    create_table(application)
    request = commit(**{"user-agent": "spark", "host": "localhost:8181", "authorization": "Bearer secret"})
    tracing.answered(application.answer, request, monotonic())

    spans = spans_of(exporter)
    assert facts(spans[f"POST {ROUTE}"]) == {
        "url.scheme": "http",
        "url.path": "/v1/namespaces/db/tables/events",
        "http.request.method": "POST",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "client.address": "10.0.0.1",
        "user_agent.original": "spark",
        "server.address": "localhost",
        "server.port": 8181,
        "endive.request.id": "an-id",
        "endive.catalog.url": catalog.url,
        "endive.table": "db.events",
    }
    assert facts(spans["commit.queue"]) == {"endive.commit.group.size": 1}
    work = facts(spans["commit.work"])
    assert work["endive.commit.batch.size"] == 1
    assert work["endive.commit.carried_out_by"]
    assert "secret" not in "".join(span.to_json() for span in spans.values())


def test_a_request_is_part_of_its_caller_s_trace(
    application: Application, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    create_table(application)
    tracing.answered(application.answer, commit(traceparent=f"00-{TRACE}-{PARENT}-01"), monotonic())

    spans = spans_of(exporter)
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {TRACE}
    parent = spans[f"POST {ROUTE}"].parent
    assert parent is not None
    assert f"{parent.span_id:016x}" == PARENT


def test_a_caller_that_does_not_sample_has_no_spans(
    application: Application, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    create_table(application)
    tracing.answered(application.answer, commit(traceparent=f"00-{TRACE}-{PARENT}-00"), monotonic())

    assert not spans_of(exporter)


def test_without_sampling_no_stages_are_recorded(application: Application, exporter: InMemorySpanExporter) -> None:
    seen = []

    def answer(request: Request) -> Response:
        seen.append(recorded_stages())
        return application.answer(request)

    with Tracing(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)) as tracing:
        tracing.answered(answer, Request("GET", "/v1/namespaces"), monotonic())

    assert seen == [None]


def test_every_member_of_a_group_has_the_stages_of_the_commit(
    application: Application, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    create_table(application)
    threads = [
        threading.Thread(target=tracing.answered, args=(application.answer, commit(str(number)), monotonic()))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    spans = exporter.get_finished_spans()
    whole = {span.context.span_id for span in spans if span.name == f"POST {ROUTE}"}
    of_puts = {span.parent.span_id for span in spans if span.name == "commit.put" and span.parent is not None}
    assert len(whole) == 8
    assert of_puts == whole


def test_an_error_of_the_server_is_an_error_of_the_span_and_a_refusal_is_none(
    application: Application, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    tracing.answered(application.answer, Request("GET", "/v1/no/such/path"), monotonic())
    tracing.answered(lambda _: Response(503), Request("GET", "/v1/namespaces"), monotonic())

    missing, broken = (span for span in exporter.get_finished_spans() if span.kind is SpanKind.SERVER)
    assert (missing.name, missing.status.status_code) == ("GET", StatusCode.UNSET)
    assert facts(missing)["http.response.status_code"] == 404
    assert broken.status.status_code is StatusCode.ERROR
    assert facts(broken)["error.type"] == "503"


def test_probes_and_metrics_are_not_traced(
    application: Application, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    for path in ("/health", "/ready", "/metrics"):
        assert tracing.answered(application.answer, Request("GET", path), monotonic()).status == 200

    assert not spans_of(exporter)


class Collector:
    """A collector on loopback that keeps the spans that it gets."""

    def __init__(self) -> None:
        self.received: list[tuple[str, ExportTraceServiceRequest]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.received.append((self.path, ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["--traces", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_a_server_sends_its_spans_to_a_collector(by: str, tmp_path: Path, collector: Collector) -> None:
    command = [sys.executable, "-m", "endive", "serve", str(tmp_path / "lake"), "--create", "--port", "0"]
    environment = {**os.environ, "OTEL_SERVICE_NAME": "lake-server"}
    if by == "--traces":
        command += [by, collector.url]
    else:
        environment[by] = collector.url
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "listening on" in line)
        asked = HttpRequest(  # noqa: S310 - our own server
            f"{line.split()[2].rstrip(';')}/v1/namespaces",
            json.dumps({"namespace": ["db"]}).encode(),
            {"traceparent": f"00-{TRACE}-{PARENT}-01"},
        )
        with urlopen(asked) as answer:  # noqa: S310
            request_id = answer.headers["x-request-id"]
        process.send_signal(signal.SIGTERM)  # sends what waits
        assert process.wait(60) == 0

    assert {path for path, _ in collector.received} == {PATH}
    resources = [one for _, request in collector.received for one in request.resource_spans]
    names = {each.value.string_value for one in resources for each in one.resource.attributes}
    assert "lake-server" in names
    spans = {span.name: span for one in resources for scope in one.scope_spans for span in scope.spans}
    whole = spans["POST /v1/{prefix}/namespaces"]
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, PARENT)
    known = {each.key: each.value.string_value for each in whole.attributes}
    assert known["endive.request.id"] == request_id
    assert spans["commit.put"].parent_span_id == whole.span_id


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    return monkeypatch


def test_nothing_is_traced_unless_it_is_asked_for(environment: pytest.MonkeyPatch) -> None:
    assert opened_tracing(None, "http") is None
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    environment.setenv("OTEL_TRACES_EXPORTER", "none")
    assert opened_tracing(None, "http") is None
    environment.setenv("OTEL_SDK_DISABLED", "true")
    assert opened_tracing("http://127.0.0.1:1", "http") is None


def test_settings_that_cannot_be_followed_are_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    environment.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ConfigurationError, match=r"(?s)'zipkin'.*not by 'grpc'"):
        opened_tracing(None, "http")
    with pytest.raises(ConfigurationError, match="not the URL of a collector"):
        to_collector("collector:4318")


def test_without_its_extra_the_option_says_what_to_install(tmp_path: Path) -> None:
    words = ("serve", str(tmp_path / "lake"), "--create", "--port", "0", "--traces", "http://127.0.0.1:1")
    result = endive_without_extras(*words, absent=frozenset({"opentelemetry"}))

    assert result.returncode == 2
    assert "pip install 'endive[otel]'" in result.stderr
