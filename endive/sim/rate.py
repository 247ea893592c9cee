"""A rate of arrivals that varies over a period, such as a day, and in bursts.

The time between two arrivals is drawn as if the rate were constant. Where the rate's factor is 2, that time passes
twice as fast. Both engines walk from one change of the factor to the next with the same arithmetic.
"""

from dataclasses import dataclass

END_TICKS = 8_000_000_000_000_000
"""More than the longest run: later arrivals do not matter."""


@dataclass(frozen=True)
class Rate:
    """Factors of the rate by time."""

    factors: tuple[float, ...] = (1.0,)
    """In equal parts of the period."""
    period_ticks: int = 86_400_000_000_000
    burst_factor: float = 1.0
    burst_every_ticks: int = 0
    """From the beginning of one burst to the next; 0: no bursts."""
    burst_ticks: int = 0

    def after(self, now_ticks: int, wait_ticks: int) -> int:
        """Return when a wait of `wait_ticks` at factor 1 that begins now is over."""
        remaining = float(wait_ticks)
        while now_ticks < END_TICKS:
            factor, end_ticks = self._piece(now_ticks)
            passing = (end_ticks - now_ticks) * factor
            if remaining < passing:
                return now_ticks + round(remaining / factor)
            remaining -= passing
            now_ticks = end_ticks
        return now_ticks

    def _piece(self, now_ticks: int) -> tuple[float, int]:
        """Return the factor now, and when it may change."""
        count, begins = len(self.factors), now_ticks - now_ticks % self.period_ticks
        part = (now_ticks - begins) * count // self.period_ticks
        end_ticks = begins + -(-(part + 1) * self.period_ticks // count)
        if not self.burst_every_ticks:
            return self.factors[part], end_ticks
        since = now_ticks % self.burst_every_ticks
        if since < self.burst_ticks:
            return self.factors[part] * self.burst_factor, min(end_ticks, now_ticks - since + self.burst_ticks)
        return self.factors[part], min(end_ticks, now_ticks - since + self.burst_every_ticks)
