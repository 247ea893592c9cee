"""Processes that help each other on a store with S3's latencies, some stopped with SIGSTOP and some killed.

Every acknowledged row is there exactly once, and every acknowledged property is there.
"""

import pytest

from benchmarks.catalog_load import APPEND, METADATA
from benchmarks.helping_processes import run

PROCESSES = 8


@pytest.mark.campaign
@pytest.mark.parametrize("tables", ["one", "each"])
@pytest.mark.parametrize("work", [APPEND, METADATA])
def test_processes_that_are_stopped_and_killed_lose_nothing(work: str, tables: str) -> None:
    found = run("s3", work, tables, PROCESSES, seconds=20.0, kills=True)
    print(found)  # noqa: T201 - how much was tried is a result

    assert found["lost"] == 0
    assert found["acknowledged"] > PROCESSES
    assert found["finished"] < PROCESSES  # some were killed
