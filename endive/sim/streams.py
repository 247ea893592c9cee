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


class StreamFamily:
    """The streams of all transactions of one seed."""

    def __init__(self, seed: int) -> None:
        self._roots = [stream(seed, purpose) for purpose in ("storage", "catalog", "backoff", "conflict")]

    def of(self, txn_id: int) -> TransactionStreams:
        """Return the streams of transaction `txn_id`, at their start."""
        return TransactionStreams(*(root.child(txn_id) for root in self._roots))
