"""A protocol as a state machine that is discovered step by step.

A generator cannot be copied, so it cannot be run twice from the middle. But the replies determine a protocol's state: a
new generator that gets the same replies reaches it again. Each state is stored once, with its next request and its
successor for each reply. However many global states a search visits, each protocol runs through each of its own states
only a few times.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from endive.errors import EndiveError, InvariantError
from endive.protocol.requests import Elsewhere, Get, GetAll, List, NewId, Request, Steps, Together
from endive.testing.fingerprint import fingerprint

Program = Callable[[], Steps[Any]]


@dataclass(frozen=True)
class Raise:
    """A reply that raises an error inside the protocol."""

    error: EndiveError


@dataclass(slots=True)
class Node:
    """A state of a protocol: its next request, or its result."""

    number: int
    request: Request[Any] | None
    """None: the protocol has ended."""
    result: Hashable = None
    """Fingerprint of the returned value, or of the error."""
    parent: "Node | None" = None
    reply: Hashable = None
    """Reply that led from the parent to this state."""
    successors: dict[Hashable, "Node"] = field(default_factory=dict)
    live: Steps[Any] | None = None
    """A generator in this state, until it is advanced."""


def with_single_requests(steps: Steps[Any], place: int = 0, splits: bool = True) -> Steps[Any]:
    """Split `GetAll` and `Together` into single requests, so that other protocols can act in between; answer `NewId`.

    `splits=False` leaves them as they are. Ids depend only on the protocol (`place`) and on how many it has drawn, so a
    run can be replayed. A request to another object store goes to the same one, with the other's URL before its paths.
    """
    ids_drawn = 0
    request = next(steps, None)
    while request is not None:
        error: EndiveError | None = None
        answer: Any = None
        if isinstance(request, NewId):
            ids_drawn += 1
            answer = f"{place + 0xE000:08x}{ids_drawn:024x}"
        elif isinstance(request, GetAll | Together) and not splits:
            answer = yield request
        else:
            singles = _singles(request)
            replies: tuple[Any, ...] = ()
            for number in range(len(singles)):
                try:
                    reply = yield _placed(singles[number])
                except EndiveError as raised:
                    error = raised
                    break
                replies = (*replies, _from_place(singles[number], reply))
            if error is None:
                answer = replies if _is_composite(request) else replies[0]
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            return stop.value
    return None


def _is_composite(request: Request[Any]) -> bool:
    inner = request.request if isinstance(request, Elsewhere) else request
    return isinstance(inner, GetAll | Together)


def _singles(request: Request[Any]) -> tuple[Request[Any], ...]:
    """Return the single requests of which a request consists."""
    if isinstance(request, Elsewhere):
        return tuple(Elsewhere(request.url, one) for one in _singles(request.request))
    if isinstance(request, GetAll):
        return tuple(map(Get, request.paths))
    return request.requests if isinstance(request, Together) else (request,)


def _placed(request: Request[Any]) -> Request[Any]:
    """Return a request to another object store as one to this store."""
    if not isinstance(request, Elsewhere):
        return request
    inner: Any = request.request
    if isinstance(inner, List):
        return List(request.url + inner.prefix, request.url + inner.after if inner.after else "")
    placed: Request[Any] = replace(inner, path=request.url + inner.path)
    return placed


def _from_place(request: Request[Any], reply: Any) -> Any:  # noqa: ANN401 - the reply to any request
    """Return the reply to such a request, with the paths of the other store."""
    if isinstance(request, Elsewhere) and isinstance(request.request, List):
        return tuple(replace(info, path=info.path.removeprefix(request.url)) for info in reply)
    return reply


class Automaton:
    """The states of one program that have been visited so far."""

    def __init__(self, program: Program, place: int = 0, merge: bool = True) -> None:
        self._program = program
        self._place = place
        self._merge = merge
        self._nodes: dict[Hashable, Node] = {}
        self.nodes: list[Node] = []
        steps = self._fresh()
        self.start = self._enter(steps, lambda: next(steps), None, None)

    def after(self, node: Node, reply: Hashable) -> Node:
        """Return the state that `reply` leads to from the state `node`."""
        successor = node.successors.get(reply)
        if successor is None:
            steps = node.live or self._replayed(node)
            node.live = None
            successor = self._enter(steps, lambda: _give(steps, reply), node, reply)
            node.successors[reply] = successor
        return successor

    def _fresh(self) -> Steps[Any]:
        return with_single_requests(self._program(), self._place)

    def _replayed(self, node: Node) -> Steps[Any]:
        replies: list[Hashable] = []
        while node.parent is not None:
            replies.append(node.reply)
            node = node.parent
        steps = self._fresh()
        next(steps)
        for reply in reversed(replies):
            _give(steps, reply)
        return steps

    def _enter(
        self, steps: Steps[Any], advance: Callable[[], Request[Any]], parent: Node | None, reply: Hashable
    ) -> Node:
        result: Hashable = None
        request: Request[Any] | None = None
        try:
            request = advance()
        except StopIteration as stop:
            result = fingerprint(stop.value)
        except InvariantError:
            raise
        except EndiveError as error:
            result = fingerprint(error)
        if self._merge or request is None:
            key: Hashable = (fingerprint(steps), result)
        else:
            key = (None if parent is None else parent.number, reply)
        known = self._nodes.get(key)
        if known is None:
            known = Node(len(self.nodes), request, result, parent, reply, live=steps if request is not None else None)
            self._nodes[key] = known
            self.nodes.append(known)
        elif known.request != request:
            raise InvariantError("equal states make the same request", f"{known.request} and {request}")
        return known


def _give(steps: Steps[Any], reply: Hashable) -> Request[Any]:
    if isinstance(reply, Raise):
        return steps.throw(reply.error)
    return steps.send(reply)
