"""The FileIO for object storage: how many requests a commit takes, and that files are those of PyIceberg's FileIO."""

import pickle
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from benchmarks.s3_server import CountingServer, requests_by_kind, running_server, summary
from endive.catalog import object_files
from endive.catalog.file_io import open_file_io
from endive.catalog.object_files import KeptFiles, ObjectFileIO
from endive.catalog.pyiceberg.catalog import EndiveCatalog

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "kind", StringType(), required=False))
ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


@pytest.fixture(scope="module")
def running() -> Iterator[CountingServer]:
    with running_server() as started:
        yield started


@pytest.fixture
def server(running: CountingServer, monkeypatch: pytest.MonkeyPatch) -> CountingServer:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    running.set_latency(0)
    running.take_requests()
    return running


@pytest.fixture
def catalog(server: CountingServer, request: pytest.FixtureRequest) -> Iterator[EndiveCatalog]:
    catalog = EndiveCatalog("lake", uri=f"s3://bucket/{request.node.name}", **server.properties)
    catalog.create_namespace("db")
    yield catalog
    catalog.close()


def test_an_append_takes_six_requests_of_which_two_are_sent_at_once(
    server: CountingServer, catalog: EndiveCatalog
) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    server.set_latency(0.02)  # so that requests sent at once overlap
    server.take_requests()
    table.append(ROWS)
    taken = server.take_requests()

    assert summary(taken) == {"requests": 6, "sequential": 5}  # the last two PUTs at the same time
    assert requests_by_kind(taken)["PUT"] == 5  # data file, manifest, manifest list, metadata file, WAL entry


def test_a_commit_without_files_takes_three_requests(server: CountingServer, catalog: EndiveCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    server.take_requests()
    with table.transaction() as transaction:
        transaction.set_properties({"a": "1"})

    assert summary(server.take_requests())["requests"] == 3


def test_a_cold_load_of_a_table_asks_once_for_its_metadata_file(server: CountingServer, catalog: EndiveCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    with closing(EndiveCatalog("cold", uri=catalog.properties["uri"], **server.properties)) as cold:
        server.take_requests()
        cold.load_table("db.t")
        kinds = requests_by_kind(server.take_requests())

    assert kinds["HEAD"] == 1  # does the metadata file exist?
    assert set(kinds) == {"LIST", "HEAD"}  # is there a newer manifest, or a newer WAL entry?


def test_every_reader_finds_the_files(server: CountingServer, catalog: EndiveCatalog) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))
    odd = ["a/b", "ä ö", "50%", "x=y&z", "#?", "+", "..", "a b"]
    rows = pa.table({"id": pa.array(range(len(odd)), pa.int64()), "kind": pa.array(odd)})
    table = catalog.create_table("db.p", SCHEMA, partition_spec=spec)
    table.append(rows)
    table.delete("id = 3")

    for properties in (server.properties, {**server.properties, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}):
        other = EndiveCatalog("other", uri=catalog.properties["uri"], **properties)
        found = other.load_table("db.p").scan().to_arrow()
        assert sorted(found["kind"].to_pylist()) == sorted(set(odd) - {"x=y&z"})
        other.close()
    assert catalog.kv.check() == []


def test_a_large_file_is_uploaded_in_parts(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_files, "UPLOAD_BYTES_MAX", 5 * 1024 * 1024)
    file = ObjectFileIO(server.properties).new_output("s3://bucket/large/file.parquet")
    parts = [bytes([number]) * 3_000_000 for number in range(4)]
    with file.create() as stream:
        for part in parts:
            stream.write(part)
    kinds = requests_by_kind(server.take_requests())

    assert kinds["PART"] == 3
    assert len(file) == 12_000_000
    with PyArrowFileIO(server.properties).new_input("s3://bucket/large/file.parquet").open() as source:
        assert source.read() == b"".join(parts)


def test_files_are_created_read_and_deleted(server: CountingServer) -> None:
    io = pickle.loads(pickle.dumps(ObjectFileIO(server.properties)))  # noqa: S301 - its own
    for location in ("s3://bucket/files/one.avro", "s3a://bucket/files/two.parquet"):
        file = io.new_output(location)
        assert not file.exists()
        with file.create() as stream:
            stream.write(b"12")
            stream.write(b"3")
        with pytest.raises(FileExistsError):
            file.create()
        assert (len(file), file.exists()) == (3, True)
        with io.new_input(location).open() as source:
            assert source.read() == b"123"
        io.delete(file)
        assert not file.exists()
        with pytest.raises(FileNotFoundError):
            io.new_input(location).open()


def test_a_file_just_written_is_read_without_a_request(server: CountingServer) -> None:
    io = ObjectFileIO(server.properties)
    with io.new_output("s3://bucket/files/kept.avro").create(overwrite=True) as stream:
        stream.write(b"123")
    assert io.new_input("s3://bucket/files/kept.avro").open().read() == b"123"
    assert requests_by_kind(server.take_requests()) == {"PUT": 1}

    object_files.forget_files()
    assert io.new_input("s3://bucket/files/kept.avro").open().read() == b"123"
    assert requests_by_kind(server.take_requests()) == {"GET": 1}


def test_a_check_sees_that_a_manifest_is_gone(server: CountingServer, catalog: EndiveCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    (manifest,) = table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    PyArrowFileIO(server.properties).delete(manifest.manifest_path)

    (finding,) = catalog.kv.check()
    assert manifest.manifest_path in finding


def test_kept_files_are_bounded() -> None:
    kept = KeptFiles(bytes_max=5)
    kept.keep("a", b"12")
    kept.keep("b", b"12")
    assert kept.get("a") == b"12"  # used, so `b` goes first
    kept.keep("c", b"12")
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (b"12", None, b"12")
    kept.keep("c", b"1")
    kept.keep("d", b"12")
    assert (kept.get("a"), kept.get("c"), kept.get("d")) == (b"12", b"1", b"12")


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.role-arn": "arn"},
        {"s3.signer": "S3V4RestSigner"},
        {"s3.server-side-encryption": "AES256"},
        {"gcs.oauth2.token": "token"},
    ],
)
def test_properties_that_only_pyiceberg_knows_get_its_own_file_io(properties: dict[str, str]) -> None:
    location = "gs://bucket/t" if "gcs.oauth2.token" in properties else "s3://bucket/t"
    assert type(open_file_io(properties, location)) is PyArrowFileIO
    assert type(open_file_io({}, location)) is ObjectFileIO


def test_properties_of_pyiceberg_reach_the_bucket(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, str | None, dict[str, object], dict[str, object]]] = []
    monkeypatch.setattr(object_files, "open_bucket", lambda *arguments: found.append(arguments))
    names = {
        "client.region": "eu-west-1",
        "s3.region": "eu-west-2",
        "client.access-key-id": "id",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.endpoint": server.url,
        "s3.connect-timeout": "2",
        "s3.request-timeout": "3.5",
        "s3.force-virtual-addressing": "true",
        "s3.proxy-uri": "http://127.0.0.1:1",
    }
    assert type(open_file_io(names, "s3://bucket/t")) is ObjectFileIO
    assert ObjectFileIO(names).bucket_of("s3://other/t") is not None
    assert ObjectFileIO({"s3.anonymous": "true", "s3.region": "r"}).bucket_of("s3n://other/t") is not None
    assert ObjectFileIO({"gcs.service.host": server.url}).bucket_of("gs://other/t") is not None

    keys = {"region": "eu-west-2", "access_key_id": "id", "secret_access_key": "secret", "session_token": "token"}
    client = {"connect_timeout": "2.0s", "timeout": "3.5s", "proxy_url": "http://127.0.0.1:1"}
    assert found == [
        ("s3://other", server.url, {**keys, "virtual_hosted_style_request": True}, client),
        ("s3://other", None, {"region": "r", "skip_signature": True}, {}),
        ("gs://other", server.url, {}, {}),
    ]


def test_a_tables_storage_properties_override_the_catalogs_as_in_pyiceberg() -> None:
    given = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "here"}
    of_table = {"s3.endpoint": "http://127.0.0.1:2"}
    with closing(EndiveCatalog("one", uri="memory://", warehouse="memory://", **given)) as catalog:
        ours = catalog.file_io(of_table, "s3://bucket/table").properties
    with closing(SqlCatalog("two", uri="sqlite://", **given)) as sql:
        theirs = sql._load_file_io(of_table, "s3://bucket/table").properties
    assert {name: ours[name] for name in given} == {name: theirs[name] for name in given} == {**given, **of_table}
