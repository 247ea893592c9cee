"""Object stores: bytes under names.

* `api`: the interface of an object store, and the capabilities it declares.
* `memory`, `local`: a dictionary, a directory. `remote`: S3, Google Cloud Storage and Azure, through obstore.
* `two_phase`: conditional writes for stores without them, from a record store (`records`, `dynamo`).
* `urls`: opening a store by its URL.
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
