"""The operation of a request, reported as a stage: for traces, without the library that makes them."""

from time import monotonic

from endive.logs import Fact
from endive.server.audit import touched_names
from endive.server.metrics import OTHER
from endive.server.routes import Call
from endive.stages import Stage, recorded_stages

OPERATION = "operation"
"""Name of the stage."""
ROUTE = "http.route"


def report_operation(operation: str, call: Call | None) -> None:
    """Report which operation a request was, and on which tables; if its stages are recorded."""
    recorded = recorded_stages()
    if recorded is None:
        return
    facts: dict[str, Fact] = {} if operation == OTHER else {ROUTE: operation.partition(" ")[2]}
    if call is not None:
        facts["catalog.url"] = call.catalog.url
        names = touched_names(call)
        if names:
            facts["table"] = names
    now_s = monotonic()
    recorded.append(Stage(OPERATION, now_s, now_s, facts))
