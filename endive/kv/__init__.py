"""The log-structured key-value store that needs nothing but a bucket.

    from endive.kv import Store
    from endive.objects import open_objects

    with Store(open_objects("file:///tmp/store")) as store:
        store.put(b"key", b"value")

Protocols and values, in reading order: `manifest`, `manifest_format`, `sst/` (files of sorted rows), `log/wal`,
`log/opening` (claim an epoch, fence), `views` (views, checkpoints), `log/recent`, `log/state`, `log/epochs`,
`transaction`, `procedures` (transactions that are data), `log/intentions`, `log/helping` (carried out by any process),
`log/committing`, `log/combining`, `maintenance/` (compactor, garbage collector, check), `pipeline` (commit batches).
`clones` (stores that share files). Threads: `group_commit`, `helper`, `writer`, `maintenance/background`, `store`,
`reader`.
"""

import logging

from endive.kv.clones import clone
from endive.kv.log.intentions import CallResult
from endive.kv.options import StoreOptions
from endive.kv.procedures import procedure
from endive.kv.reader import Reader
from endive.kv.store import Store, Ticket

__all__ = ["CallResult", "Reader", "Store", "StoreOptions", "Ticket", "clone", "procedure"]

logging.getLogger("endive").addHandler(logging.NullHandler())  # a library logs only where the program asks for it
