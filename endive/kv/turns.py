"""Whose turn is it? A member that keeps winning lets others go first now and then.

Who has just filled a slot knows the end of the log without reading, and creates the next slot before anybody who has to
read first: measured at the latencies of a remote store, one busy member of eight makes all commits. Losing leaves no
trace, so the winner cannot know that others wait. It pauses after a number of slots in a row, long enough for others to
read and create. If somebody used the pause, it pauses after every slot; if nobody did, half as often the next time.

Nothing here is needed for safety.
"""

STREAK_MAX = 32
"""Slots in a row without a pause. At 0.1 s each, others wait three seconds at first; a lone one loses 5 %."""
STREAK_FIRST = 4
PAUSE_COMMITS = 1.5
"""A pause, in times of an undisturbed commit: who lost reads, looks for a newer manifest, and creates."""


class Turns:
    """How long a member should pause after each of its commits."""

    def __init__(self) -> None:
        self._streak = 0
        """Slots in a row since the last pause or since others came in between."""
        self._streak_max = STREAK_FIRST
        self._commit_s = 0.0
        """The time of an undisturbed commit."""
        self._has_paused = False

    def after_commit(self, took_s: float, others: int) -> float:
        """Return how long to pause, after a commit; `others`: slots that others have filled since the one before."""
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
