"""One Spark session for all tests that want one; they run in one process, since a session takes seconds to start."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from endive.spark.session import spark_session
from tests.pyspark_sockets import close_sockets_of_pyspark
from tests.servers.conftest import ANY_KEYS

QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # half the processor time of a short session
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}

close_sockets_of_pyspark()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give a session in local mode, with two cores and task attempts as everywhere.

    Its workers have the environment that the session is started with, so the keys for the test servers must be there.
    """
    if os.environ.get("ENDIVE_WITHOUT_SPARK"):
        pytest.skip("without Spark")
    os.environ.update(ANY_KEYS)
    with spark_session("local[2]", settings=QUICK) as session:
        yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
