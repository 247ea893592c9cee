"""A transaction's own random streams, one for each purpose."""

from dataclasses import dataclass

from endive.rng import Stream, stream


@dataclass(frozen=True)
class TransactionStreams:
    """The streams of one transaction. They do not depend on draws of other transactions or for other purposes."""

    storage: Stream
    catalog: Stream
    backoff: Stream
    conflict: Stream


def stream_name(purpose: str, class_name: str = "") -> str:
    """Return the name of a class's stream for one purpose; of the only class, that is the purpose."""
    return f"{class_name}/{purpose}" if class_name else purpose


class StreamFamily:
    """The streams of all transactions of one class and seed."""

    def __init__(self, seed: int, class_name: str = "") -> None:
        purposes = ("storage", "catalog", "backoff", "conflict")
        self._roots = [stream(seed, stream_name(purpose, class_name)) for purpose in purposes]

    def of(self, txn_id: int) -> TransactionStreams:
        """Return the streams of transaction `txn_id`, at their start."""
        return TransactionStreams(*(root.child(txn_id) for root in self._roots))
