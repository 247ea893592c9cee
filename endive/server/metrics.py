"""Metrics in the text format of Prometheus: requests by operation and status, their time, conflicts by table."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from threading import Lock

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of a request's time."""
TABLES_MAX = 1000
"""Tables with a counter of their own; conflicts of further ones are counted together."""
OTHER = "other"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of a server since its start. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._conflicts: Counter[tuple[str, str]] = Counter()

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count a request. `operation`: its method and template, so that names in paths make no new series."""
        with self._lock:
            self._requests[operation, status] += 1
            self._times.setdefault(operation, [0] * (len(BUCKETS_S) + 1))[bisect_left(BUCKETS_S, seconds)] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds

    def conflict(self, warehouse: str, table: str) -> None:
        """Count a commit that was refused because of another one."""
        with self._lock:
            known = (warehouse, table) in self._conflicts or len(self._conflicts) < TABLES_MAX
            self._conflicts[warehouse, table if known else OTHER] += 1

    def text(self, with_tables: bool = True) -> str:
        """Return all metrics; `with_tables`: also those that have a table's name."""
        with self._lock:
            return "\n".join((*self._lines(), *(self._table_lines() if with_tables else ()), ""))

    def _lines(self) -> Iterator[str]:
        yield "# HELP endive_requests_total Requests by operation and status."
        yield "# TYPE endive_requests_total counter"
        for (operation, status), count in sorted(self._requests.items()):
            yield f'endive_requests_total{{operation="{escaped_label(operation)}",status="{status}"}} {count}'
        yield "# HELP endive_request_seconds Time of a request from its last byte to its answer."
        yield "# TYPE endive_request_seconds histogram"
        for operation, counts in sorted(self._times.items()):
            label, below = f'operation="{escaped_label(operation)}"', 0
            for bound, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                below += count
                yield f'endive_request_seconds_bucket{{{label},le="{bound}"}} {below}'
            yield f"endive_request_seconds_sum{{{label}}} {self._seconds[operation]:.6f}"
            yield f"endive_request_seconds_count{{{label}}} {below}"

    def _table_lines(self) -> Iterator[str]:
        yield "# HELP endive_commit_conflicts_total Commits refused because of another one, by table."
        yield "# TYPE endive_commit_conflicts_total counter"
        for (warehouse, table), count in sorted(self._conflicts.items()):
            labels = f'warehouse="{escaped_label(warehouse)}",table="{escaped_label(table)}"'
            yield f"endive_commit_conflicts_total{{{labels}}} {count}"


def escaped_label(text: str) -> str:
    """Return the value of a label as the text format has it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
