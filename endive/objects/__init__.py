"""Object stores: things that hold bytes under names.

* `api`: what a store must do, and what it says of itself.
* `memory`, `local`: a dictionary, a directory. `remote`: S3, Google Cloud Storage and Azure, through obstore.
* `two_phase`: create-if-absent for stores that have none, with a transactional store's help.
* `faulty`: a wrapper that delays, throttles, loses replies and stalls, from a seed.
* `urls`: from a URL to a store.
"""

from endive.objects.api import Capabilities, ObjectStore
from endive.objects.faulty import FaultyStore, Troubles
from endive.objects.local import LocalStore
from endive.objects.memory import MemoryStore
from endive.objects.two_phase import TwoPhaseStore
from endive.objects.urls import open_objects

__all__ = [
    "Capabilities",
    "FaultyStore",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "Troubles",
    "TwoPhaseStore",
    "open_objects",
]
