"""What is opened and must be closed: one way to write `with`."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Closed at the end of a `with`, whatever happens in it."""

    @abstractmethod
    def close(self) -> None:
        """Let go. Closing twice is no mistake."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
