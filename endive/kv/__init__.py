"""The log-structured key-value store that needs nothing but a bucket.

    from endive.kv import Store
    from endive.objects import open_objects

    with Store(open_objects("file:///tmp/store")) as store:
        store.put(b"key", b"value")

In reading order: `model` (what a manifest says), `manifest`, `format`, `bloom`, `compression` (bytes), `wal`, `opening`
(claim, fence, replay), `reading` (views, checkpoints), `merge`, `tables`, `lookup` (rows in files), `compactor`,
`collector`, `check`; `recent`, `transaction`, `membership` (several processes write); all of these are protocols and
values. Then what has threads: `writing` (the write queue, which has none), `cache`, `view`, `housekeeping`, `store`,
`counters`, `reader`, `grouping`, `shared`.
"""

import logging

from endive.kv.options import SharedOptions, StoreOptions
from endive.kv.reader import Reader
from endive.kv.shared import SharedStore
from endive.kv.store import Store, Ticket

__all__ = ["Reader", "SharedOptions", "SharedStore", "Store", "StoreOptions", "Ticket"]

logging.getLogger("endive").addHandler(logging.NullHandler())  # what a library logs is for who asks for it
