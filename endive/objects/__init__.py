"""Object stores: things that hold bytes under names.

* `api`: what a store must do, and what it says of itself.
* `memory`, `local`: a dictionary, a directory. `remote`: S3, Google Cloud Storage and Azure, through obstore.
* `two_phase`: create-if-absent for stores that have none, with a transactional store's help.
* `urls`: from a URL to a store.
"""

from endive.objects.api import Capabilities, ObjectStore
from endive.objects.local import LocalStore
from endive.objects.memory import MemoryStore
from endive.objects.two_phase import TwoPhaseStore
from endive.objects.urls import open_objects

__all__ = [
    "Capabilities",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "TwoPhaseStore",
    "open_objects",
]
