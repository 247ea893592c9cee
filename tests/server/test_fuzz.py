"""A fuzz of the whole API: no request leads to an answer of 5xx, and every error has Iceberg's form."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from endive.catalog import KVCatalog
from endive.server.application import Application
from endive.server.http import Request, Response
from tests.server.calls import answer, create_table
from tests.server.fuzzing import requests

EXAMPLES = 400
EXAMPLES_MANY = 20_000
STATEFUL = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def fuzzed(tmp_path: Path) -> Application:
    """A catalog with a table, which the examples go on to change."""
    catalog = KVCatalog.create("memory://", str(tmp_path))
    made = Application({"lake": catalog})
    for name in ("db", "a.b"):
        assert answer(made, "POST", "namespaces", {"namespace": [name]})[0] == 200
    create_table(made, "t")
    return made


def check(request: Request, response: Response) -> None:
    assert response.status < 500, (request, response.body)
    if response.status >= 400:
        error = json.loads(response.body)["error"]
        assert error["code"] == response.status
        assert error["type"].endswith(("Exception", "Error"))
        assert error["message"]
    elif response.body:
        json.loads(response.body)


@given(request=requests())
@STATEFUL
def test_no_request_breaks_the_server(fuzzed: Application, request: Request) -> None:
    check(request, fuzzed.answer(request))


@pytest.mark.campaign
@given(request=requests())
@settings(STATEFUL, max_examples=EXAMPLES_MANY)
def test_no_request_of_many_breaks_the_server(fuzzed: Application, request: Request) -> None:
    check(request, fuzzed.answer(request))


def test_the_requests_reach_the_operations(fuzzed: Application) -> None:
    """The fuzz would prove nothing if all of it were refused at the door."""
    statuses: Counter[int] = Counter()

    @given(request=requests())
    @settings(STATEFUL, max_examples=EXAMPLES, derandomize=True, database=None)
    def count(request: Request) -> None:
        statuses[fuzzed.answer(request).status] += 1

    count()
    assert statuses[200] + statuses[204] > EXAMPLES / 40
    assert {400, 404} <= statuses.keys()
