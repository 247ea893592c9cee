"""Two protocols at once: one that is needed, and one beside it that reads ahead.

The requests of both are sent together, as one round trip. The reader ahead fills a cache, and its result is not used:
it is stopped when the other protocol ends, and given up if a request fails. So it changes nothing but the
number of round trips. It may make no request that writes.
"""

from typing import Any, TypeVar

from endive.errors import EndiveError, InvariantError
from endive.protocol.requests import REQUESTS_MAX, Get, GetAll, GetRange, List, Request, Steps, Together

T = TypeVar("T")


def beside(steps: Steps[T], ahead: Steps[object]) -> Steps[T]:
    """Run a protocol, and send the requests of `ahead` together with its reads."""
    error: EndiveError | None = None
    reply: Any = None
    wanted = _next(ahead, None)
    for _ in range(REQUESTS_MAX):
        try:
            request = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as stop:
            ahead.close()
            result: T = stop.value
            return result
        error, reply = None, None
        own = _parts(request)
        other = _parts(wanted) if wanted is not None and own else ()
        if other:
            try:
                replies = yield Together((*own, *other))
            except EndiveError:
                wanted = None  # perhaps only its request has failed: the other one is sent again, alone
            else:
                wanted = _next(ahead, _whole(wanted, replies[len(own) :]))
                reply = _whole(request, replies[: len(own)])
                continue
        try:
            reply = yield request
        except EndiveError as raised:
            error = raised
    raise InvariantError("a protocol ends", f"{REQUESTS_MAX:,} requests")


def _next(ahead: Steps[object], reply: Any) -> Request[Any] | None:  # noqa: ANN401 - the reply's type is the request's
    """Return the next request of the reader ahead; None if it has no more, or has failed."""
    try:
        return ahead.send(reply)
    except (StopIteration, EndiveError):
        return None


def _parts(request: Request[Any]) -> tuple[Request[Any], ...]:
    """Return the requests that a read consists of; none if it is not a read, or one elsewhere."""
    match request:
        case GetAll(paths):
            return tuple(map(Get, paths))
        case Together(requests):
            return requests
        case Get() | GetRange() | List():
            return (request,)
    return ()


def _whole(request: Request[Any] | None, replies: tuple[Any, ...]) -> Any:  # noqa: ANN401 - as above
    """Return the reply to a request from those to its parts."""
    return replies if isinstance(request, GetAll | Together) else replies[0]
