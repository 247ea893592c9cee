"""The thread that writes metadata files: when it is woken."""

from threading import Condition, Event, Semaphore

import pytest

from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.publisher import Publisher
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME

LONG_S = 20
"""After which a thread that should have done something never will."""


class Watched(Condition):
    """Reports that a thread waits without a limit: a thread that gets the lock after that has to wake it."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = Event()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            self.idle.set()
        return super().wait(timeout)


def test_a_publisher_that_has_nothing_to_do_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, published, watched = Publisher(DictStore(), MetadataFiles({}), pause_s=0), Semaphore(0), Watched()
    monkeypatch.setattr(publisher, "_changed", watched)
    monkeypatch.setattr(publisher, "publish", lambda *_: published.release())
    publisher.remind(NAME)
    assert published.acquire(timeout=LONG_S)
    assert watched.idle.wait(LONG_S)

    publisher.remind(NAME)

    assert published.acquire(timeout=LONG_S)
    publisher.close()
