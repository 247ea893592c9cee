"""A Spark session that starts in the background while its process loads modules: Java takes seconds to start."""

from contextlib import AbstractContextManager
from threading import Thread
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from endive.spark.using import use


class StartingSession:
    """Starts a session in a thread: `with StartingSession(spark_session(...)) as starting: … starting.session()`.

    The session ends with the block, in every case; a block that fails first waits for the start.
    """

    def __init__(self, manager: AbstractContextManager[SparkSession], sources: bool = True) -> None:
        """Take a session that is yet to be entered. `sources`: prepare it for tables, as `use` does."""
        self._manager = manager
        self._sources = sources
        self._spark: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._start, name="endive-spark-start", daemon=True)

    def _start(self) -> None:
        try:
            self._spark = self._manager.__enter__()
        except BaseException as error:  # noqa: BLE001 - raised where the session is wanted
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def session(self) -> SparkSession:
        """Wait for the session, and return it. Raises the error of its start."""
        self._thread.join()
        if self._spark is None:
            raise self._error or RuntimeError("the session did not start")
        return use(self._spark) if self._sources else self._spark

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()
        if self._spark is not None:
            self._manager.__exit__(kind, error, trace)
