"""Records of checkpoints and clones.

__checkpoints/{name}     a named, expiring point of all tables, and the store's checkpoint that keeps its rows
__cloned/{uuid}          a table that came with a clone: the location below which the files are its own
__cloning                of a catalog that is being made as a clone, until all its rows are there
"""

from dataclasses import dataclass

from pydantic_core import from_json, to_json

from endive.catalog.model.encoding import decodes

NEVER = 0


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A point of all tables."""

    name: str
    id: str
    """Drawn by the creating call."""
    created_unix_ms: int
    expire_unix_ms: int = NEVER
    store_checkpoint: str = ""
    """The store's checkpoint. Empty: it is being created, and holds nothing yet."""
    clone_url: str = ""
    """The catalog that was cloned from it and needs its files. Empty: none."""

    @property
    def is_finished(self) -> bool:
        """Whether it can be opened."""
        return bool(self.store_checkpoint)

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over. The checkpoint of a clone has no end."""
        return self.expire_unix_ms != NEVER and self.expire_unix_ms <= now_ms

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json({name: getattr(self, name) for name in self.__slots__})

    @staticmethod
    @decodes("a checkpoint's record")
    def decoded(body: bytes) -> "CheckpointRecord":
        """Return the record of a JSON."""
        return CheckpointRecord(**from_json(body))


@dataclass(frozen=True, slots=True)
class CloneSource:
    """The catalog and the checkpoint that a clone is made from."""

    url: str
    checkpoint: str
    """The name of the checkpoint at the source."""
    id: str
    """The checkpoint's id."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json({name: getattr(self, name) for name in self.__slots__})

    @staticmethod
    @decodes("the mark of a clone")
    def decoded(body: bytes) -> "CloneSource":
        """Return the record of a JSON."""
        return CloneSource(**from_json(body))
