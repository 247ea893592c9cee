"""Turns of shared writers: a writer that keeps winning lets others go first now and then.

A writer that has just appended knows the end of the log without reading, and creates the next entry before any writer
that has to read first: measured at the latencies of a remote store, one busy writer of eight makes all commits. Losing
leaves no trace, so the winner cannot know that others wait. It pauses after a number of entries in a row, long enough
for others to read and create. If another writer used the pause, it pauses after every entry; if none did, half as often
the next time.

Nothing here is needed for safety.
"""

STREAK_MAX = 32
"""Entries in a row without a pause. At 0.1 s each, others wait three seconds at first; a lone writer loses 5 %."""
STREAK_FIRST = 4
PAUSE_COMMITS = 1.5
"""A pause, in times of an undisturbed commit: a writer that lost reads, looks for a newer manifest, and creates."""


class Turns:
    """How long a writer should pause after each of its commits."""

    def __init__(self) -> None:
        self._streak = 0
        """Entries in a row since the last pause or since others came in between."""
        self._streak_max = STREAK_FIRST
        self._commit_s = 0.0
        """The time of an undisturbed commit."""
        self._has_paused = False

    def after_commit(self, took_s: float, others: int) -> float:
        """Return how long to pause, after a commit; `others`: entries that others have written since the one before."""
        if others:
            self._streak_max, self._streak = 1, 0
        else:
            self._commit_s = took_s if not self._commit_s else 0.8 * self._commit_s + 0.2 * took_s
            if self._has_paused:
                self._streak_max = min(2 * self._streak_max, STREAK_MAX)
        self._streak += 1
        self._has_paused = self._streak >= self._streak_max
        if not self._has_paused:
            return 0.0
        self._streak = 0
        return PAUSE_COMMITS * self._commit_s
