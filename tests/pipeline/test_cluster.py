from pathlib import Path

import pytest

from tests.pipeline.cluster import standalone_cluster
from tests.pipeline.test_session import DEADLINE_S, until, waiting


@pytest.mark.campaign  # `make test` has the cluster of `test_bucket_sweep`, which loses a worker, too
def test_a_cluster_that_loses_a_worker_loses_no_results(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "marks").mkdir()
    marks = tmp_path / "marks"

    def has_begun(executor: int) -> bool:
        return (marks / f"task-{executor}").exists()

    with standalone_cluster(tmp_path / "cluster") as cluster, waiting(marks, cluster.url) as (program, _):
        until(lambda: all(any(map(has_begun, worker.executors())) for worker in cluster.workers))

        cluster.kill(0)
        (marks / "go").touch()
        output, errors = program.communicate(timeout=DEADLINE_S)

        assert (program.returncode, errors) == (0, "")
        assert output == "[0, 1, 2, 3, 4, 5, 6, 7]\n"
        until(lambda: cluster.status()["aliveworkers"] == 1)
