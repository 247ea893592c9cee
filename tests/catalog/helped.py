"""A store whose transactions are all announced, and carried out by another process."""

from typing import TypeVar

from endive.catalog.model.transaction import TransactionFunction
from endive.kv import Store
from endive.kv.log.combining import outcomes_of
from endive.kv.log.committing import commit_batch
from endive.kv.log.helping import announce, delete_intention, result_of
from endive.kv.log.intentions import DONE
from endive.kv.log.state import StoreState, newest_state, refreshed
from endive.kv.recorded import called_functions, record_functions
from endive.kv.sst.reading import NoCache
from endive.objects import MemoryStore
from tests.catalog.stand_in import Submitted
from tests.store.functions import QUIET

T = TypeVar("T")
ROUNDS = 10


class HelpedStore(Store):
    """Runs a function on the state that it knows, announces its reads and rows, and lets another store commit them."""

    def __init__(self) -> None:
        objects = MemoryStore()
        super().__init__(objects, "shared", QUIET)
        self._other = Store(objects, "shared", QUIET)
        self.carried = 0
        """Functions that were carried out as reads and rows."""
        self.called = 0
        """...and as procedures."""

    def _state(self) -> StoreState:
        state = self.driver.run(newest_state())
        assert state is not None
        return state

    def submit(self, function: TransactionFunction[T]) -> Submitted[T]:  # type: ignore[override]
        return Submitted(lambda: self.transact(function))

    def transact(self, function: TransactionFunction[T]) -> T:  # type: ignore[override]
        """Run a function; one that raises, or writes nothing, is for its own store."""
        driver = self.driver
        for _ in range(ROUNDS):
            state = self._state()
            recorded = called_functions((function,))
            if recorded is None:
                recorded = driver.run(record_functions((function,), state, NoCache(), {}))
            if recorded is None:
                return Store.submit(self, function).wait()
            intention = driver.run(announce(state, recorded.calls, "owner"))
            helping = self._other.driver.run(refreshed(state))
            self._other.driver.run(commit_batch(helping, (), NoCache(), by="another process"))
            decided = driver.run(result_of(intention, self._state(), NoCache()))
            assert decided is not None
            assert decided.by == "another process"
            driver.run(delete_intention(intention))
            self.refresh()
            if recorded.portable:
                self.called += 1
                outcome = recorded.portable[0].outcome(outcomes_of(recorded.calls, decided)[0])
                if outcome.error is not None:
                    raise outcome.error
                answer: T = outcome.value
                return answer
            if decided.results[0].kind == DONE:
                self.carried += 1
                result: T = recorded.values[0]
                return result
        raise AssertionError("refused again and again")

    def close(self) -> None:
        super().close()
        self._other.close()
