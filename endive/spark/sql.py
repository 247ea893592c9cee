"""Spark SQL on a bucket alone: Iceberg's own Spark runtime, on a catalog server inside the Spark driver.

    with sql_session("s3://bucket/lake") as spark:          # a session of Endive's
        spark.sql("CREATE TABLE lake.db.events (id BIGINT, ts TIMESTAMP) PARTITIONED BY (day(ts))")

    spark = catalog(SparkSession.builder, "lake", "s3://bucket/lake")      # or a session of your own

Only the driver talks to the server, on a loopback port: executors read and write the bucket and nothing else. Spark
resolves Iceberg's runtime from Maven when its JVM starts. The server's token is set in the running session: as an
option of the JVM every user of the machine could read it.
"""

import atexit
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from endive.catalog import KVCatalog
from endive.catalog.connection import url_of
from endive.errors import ConfigurationError
from endive.server import RunningServer, serve_in_background
from endive.server.configuration import client_properties
from endive.spark.session import spark_session

ICEBERG = "1.11.0"
RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}"
"""Iceberg for the Spark of the extra `[spark]`."""
CLOUDS = {"s3": "aws", "gs": "gcp", "az": "azure", "abfs": "azure", "abfss": "azure"}
"""Bundles of Iceberg's clients of object stores, by the scheme of the warehouse."""
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
PACKAGES = "spark.jars.packages"
SQL_EXTENSIONS = "spark.sql.extensions"
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})

_at_exit = ExitStack()
"""Servers of sessions that end with the process."""
atexit.register(_at_exit.close)


def packages(url: str) -> str:
    """Return the Maven packages for tables at a URL."""
    bundle = CLOUDS.get(urlsplit(url).scheme)
    return RUNTIME if bundle is None else f"{RUNTIME},org.apache.iceberg:iceberg-{bundle}-bundle:{ICEBERG}"


def settings_at_start(name: str, url: str) -> dict[str, str]:
    """Return the settings that Spark reads when its JVM starts. None of them is a secret."""
    return {
        PACKAGES: packages(url),
        SQL_EXTENSIONS: EXTENSIONS,
        f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{name}.type": "rest",
        f"spark.sql.catalog.{name}.rest.auth.type": "oauth2",
        f"spark.sql.catalog.{name}.token-refresh-enabled": "false",  # the token is valid as long as the server runs
        # A driver that embeds the server sees its own commits at once; a cache would hide those of other processes.
        f"spark.sql.catalog.{name}.cache-enabled": "false",
    }


def connect(spark: SparkSession, name: str, server: RunningServer, properties: Mapping[str, str]) -> None:
    """Let a catalog of a running session use a server."""
    given = {**server.client_properties, **client_properties(properties)}
    for key, value in given.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)


@contextmanager
def sql_session(
    url: str,
    name: str = "lake",
    properties: Mapping[str, str] = NO_PROPERTIES,
    master: str | None = None,
    settings: Mapping[str, str] = NO_PROPERTIES,
    create: bool = True,
) -> Iterator[SparkSession]:
    """Provide a Spark session with the tables of a catalog under `name`. It ends with the block.

    `properties`: of the catalog, such as `s3.endpoint`. `master`, `settings`: as in `spark_session`. `create`: create
    the catalog if there is none.
    """
    with KVCatalog.open(url, None, properties, create) as kv, serve_in_background(kv) as server:
        at_start = {**settings_at_start(name, url_of(url)), **settings}
        with spark_session(master, f"endive {name}", at_start) as spark:
            _require_iceberg(spark, name, url)
            connect(spark, name, server, properties)
            yield spark


def catalog(
    builder: "SparkSession.Builder | SparkSession",
    name: str,
    url: str,
    properties: Mapping[str, str] = NO_PROPERTIES,
    create: bool = True,
) -> SparkSession:
    """Return a session in which `name` has the tables of the catalog at a URL. Its server ends with the process.

    A session that is already running must have been started with Iceberg's runtime: the error names the settings.
    """
    if isinstance(builder, SparkSession):
        spark = builder
    else:
        for key, value in settings_at_start(name, url_of(url)).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    _require_iceberg(spark, name, url)
    kv = _at_exit.enter_context(KVCatalog.open(url, None, properties, create))
    server = _at_exit.enter_context(serve_in_background(kv))
    for key, value in settings_at_start(name, url_of(url)).items():
        if key.startswith("spark.sql.catalog."):
            spark.conf.set(key, value)
    connect(spark, name, server, properties)
    return spark


def _require_iceberg(spark: SparkSession, name: str, url: str) -> None:
    """Raise if a session was started without Iceberg's runtime."""
    if EXTENSIONS not in (spark.conf.get(SQL_EXTENSIONS, "") or ""):
        start = settings_at_start(name, url_of(url))
        wanted = ", ".join(f"{key}={start[key]}" for key in (PACKAGES, SQL_EXTENSIONS))
        raise ConfigurationError(
            "the running Spark session",
            [f"it was started without Iceberg's runtime: stop it, or start it with {wanted}"],
        )
