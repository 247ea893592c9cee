"""Threads that start at the same moment."""

import threading
from collections.abc import Callable


def winners(count: int, attempt: Callable[[int], bool]) -> list[int]:
    """Run `attempt` in `count` threads at once; return the numbers of those that succeeded."""
    won: list[int] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        if attempt(number):
            won.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won
