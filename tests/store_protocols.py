"""Steps of the store's protocols that only tests take on their own."""

from bisect import bisect_left
from collections.abc import Sequence

from endive.kv.log.wal import WalEntry
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.lookup import Row
from endive.protocol.requests import NewId, Steps, ask
from endive.protocol.sequenced import update


def claim_compactor() -> Steps[int]:
    """Claim the next compactor epoch, without the lease of `claim_maintenance`."""
    put_id = yield from ask(NewId())
    claimed = yield from update(MANIFESTS, lambda base: base.value.with_compactor(put_id))
    return claimed.value.compactor_epoch


def find_in_entries(entries: Sequence[WalEntry], key: bytes) -> Row | None:
    """Return the newest row of `key` in WAL entries; None if they have none."""
    for entry in reversed(entries):
        place = bisect_left(entry.rows.keys, key)
        if place < len(entry.rows.keys) and entry.rows.keys[place] == key:
            return Row(entry.rows.values[place], entry.rows.seqs[place])
    return None
