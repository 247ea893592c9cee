"""Servers for the tests: each is started once per session, on free ports of the loopback interface.

SeaweedFS and MiniStack (DynamoDB) come from PyPI. PostgreSQL, MariaDB and Azurite are used if they are installed; a
test that needs a missing one is skipped, and names it.
"""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

START_S = 300
"""Time limit for a start; on a busy machine, Azurite needed more than 60 s."""
STOP_S = 3
"""Servers that end more slowly, such as SeaweedFS, are killed: their data is not needed any more."""
ANY_KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
"""The servers accept any keys, but clients need some."""
KNOWN_KEYS = {"AWS_ACCESS_KEY_ID": "known", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
"""The keys that the locked server accepts."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def port_for_seaweed() -> int:
    """Return a port whose neighbour 10,000 higher exists too: SeaweedFS uses both."""
    port = free_port()
    while port > 55_000:
        port = free_port()
    return port


@contextmanager
def running(
    command: list[str],
    is_ready: Callable[[], bool],
    log: Path,
    user: str | None = None,
    settings: dict[str, str] | None = None,
) -> Iterator[None]:
    with log.open("wb") as output:
        # SeaweedFS with keys in its environment refuses all other clients, such as the probes below.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= settings or {}
        process = subprocess.Popen(command, stdout=output, stderr=output, user=user, cwd="/", env=environment)
        try:
            deadline = time.monotonic() + START_S
            while not is_ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"{command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(url: str, method: str = "GET") -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5) as answer:  # noqa: S310
            return bool(answer.status < 500)
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def succeeds(url: str, method: str = "GET") -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5) as answer:  # noqa: S310
            return bool(answer.status < 300)
    except OSError:
        return False


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def seaweedfs(
    directory: Path,
    is_ready: Callable[[str], bool],
    settings: dict[str, str] | None = None,
    more: Sequence[str] = (),
) -> Iterator[str]:
    """Run SeaweedFS and yield its address. It decides conditional writes correctly under races."""
    ports = {name: port_for_seaweed() for name in ("master", "volume", "filer", "s3")}
    options = [f"-{name}.port={port}" for name, port in ports.items()]
    weed = str(Path(sys.executable).with_name("weed"))
    command = [weed, "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", *options]
    command += ["-master.volumeSizeLimitMB=64", "-volume.max=30", "-s3.port.iceberg=0", "-s3.port.lance=0", *more]
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    with running(command, lambda: is_ready(endpoint), directory / "log", settings=settings):
        yield endpoint


def has_bucket(endpoint: str) -> bool:
    """Create the bucket `bucket` and an object. A starting server may refuse, or not find the bucket yet."""
    probe = f"{endpoint}/bucket/probe"
    return (
        answers(f"{endpoint}/bucket", "PUT")
        and succeeds(probe, "PUT")
        and succeeds(probe)
        and succeeds(f"{endpoint}/bucket?list-type=2")
    )


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with one bucket, `bucket`, open to all clients."""
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs"), has_bucket) as endpoint:
        os.environ.update(ANY_KEYS)
        yield endpoint


@pytest.fixture(scope="session")
def locked_s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that accepts one key, `known` with the secret `secret`."""
    keys = {name: value for name, value in KNOWN_KEYS.items() if name != "AWS_REGION"}
    with seaweedfs(tmp_path_factory.mktemp("locked"), lambda endpoint: answers(f"{endpoint}/bucket"), keys) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def keyed_bucket(locked_s3_endpoint: str) -> str:
    """Return the locked server's address; it has the bucket `keyed`.

    SeaweedFS without keys refuses the signed, chunked writes of Amazon's Java client.
    """
    import boto3

    boto3.client(
        "s3",
        endpoint_url=locked_s3_endpoint,
        region_name=KNOWN_KEYS["AWS_REGION"],
        aws_access_key_id=KNOWN_KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KNOWN_KEYS["AWS_SECRET_ACCESS_KEY"],
    ).create_bucket(Bucket="keyed")
    return locked_s3_endpoint


def unprivileged() -> str | None:
    """PostgreSQL and MariaDB refuse to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def given_to(user: str | None, directory: Path) -> Path:
    if user is not None:
        for parent in (directory, *directory.parents):
            if parent.owner() == "root" and parent not in (Path("/"), Path("/tmp")):  # noqa: S108
                parent.chmod(parent.stat().st_mode | 0o055)
        shutil.chown(directory, user)
    return directory


def program(name: str, *places: str) -> str:
    found = shutil.which(name) or next((str(path) for place in places for path in Path("/").glob(place)), None)
    if found is None:
        pytest.skip(f"this machine has no {name}")
    return found


@contextmanager
def postgres(directory: Path, log: Path) -> Iterator[int]:
    """Run PostgreSQL with a new database and yield its port. The user `endive` needs no password."""
    initdb = program("initdb", "usr/lib/postgresql/*/bin/initdb")
    user, port = unprivileged(), free_port()
    given_to(user, directory)
    made = [initdb, "-D", str(directory / "data"), "-U", "endive", "--auth=trust", "--no-sync"]
    subprocess.run(made, user=user, check=True, capture_output=True, cwd="/")
    server = str(Path(initdb).with_name("postgres"))
    command = [server, "-D", str(directory / "data"), "-p", str(port), "-k", str(directory), "-h", "127.0.0.1"]
    with running(command, lambda: listens(port), log, user):
        yield port


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres(tmp_path_factory.mktemp("postgres"), tmp_path_factory.mktemp("log") / "postgres") as port:
        yield f"postgresql://endive@127.0.0.1:{port}/postgres"


@pytest.fixture(scope="session")
def mariadb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = program("mariadbd", "usr/sbin/mariadbd")
    user, port = unprivileged(), free_port()
    directory = given_to(user, tmp_path_factory.mktemp("mariadb"))
    share = Path(server).resolve().parents[1] / "share" / "mysql"
    (directory / "data" / "mysql").mkdir(parents=True)
    (directory / "data" / "test").mkdir()
    for made in (directory / "data", directory / "data" / "mysql", directory / "data" / "test"):
        given_to(user, made)
    common = [server, "--no-defaults", f"--datadir={directory}/data", f"--lc-messages-dir={share}"]
    names = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
    script = b"USE mysql;\n" + b"".join((share / name).read_bytes() for name in names)
    bootstrap = [*common, "--bootstrap", "--skip-grant-tables"]
    subprocess.run(bootstrap, input=script, user=user, check=True, capture_output=True, cwd="/")
    command = [*common, "--skip-grant-tables", f"--port={port}", "--bind-address=127.0.0.1"]
    command += [f"--socket={directory}/data/socket", f"--pid-file={directory}/data/pid"]
    with running(command, lambda: listens(port), tmp_path_factory.mktemp("log") / "mariadb", user):
        yield f"mysql://root@127.0.0.1:{port}/test"


@pytest.fixture(scope="session")
def dynamo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MiniStack's DynamoDB with an empty table. It serialises conditional writes."""
    import boto3

    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    only_here = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "IOT_MTLS_ENABLED": "0", "SFTP_ENABLED": "0"}
    command = [str(Path(sys.executable).with_name("ministack"))]
    with running(command, lambda: listens(port), tmp_path_factory.mktemp("log") / "dynamo", settings=only_here):
        os.environ.update(ANY_KEYS)
        boto3.client("dynamodb", endpoint_url=endpoint, region_name="us-east-1").create_table(
            TableName="records",
            KeySchema=[{"AttributeName": "destination", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "destination", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield f"dynamodb://records?region=us-east-1&endpoint={endpoint}"


@pytest.fixture(scope="session")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Azurite, with one container, `container`."""
    azurite = program("azurite-blob")
    port = free_port()
    directory = tmp_path_factory.mktemp("azurite")
    command = [azurite, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
    command += ["--skipApiVersionCheck", "--silent"]
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    # The name and key that every installation of Azurite has.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    os.environ.update(AZURE_STORAGE_ACCOUNT_NAME="devstoreaccount1", AZURE_STORAGE_ACCOUNT_KEY=key)
    with running(command, lambda: listens(port), directory / "log"):
        make_container(endpoint, key)
        yield endpoint


def make_container(endpoint: str, key: str) -> None:
    """Create the container with a signed request: obstore has no call for it."""
    import base64
    import hashlib
    import hmac
    from email.utils import formatdate

    date = formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    text = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text += "/devstoreaccount1/devstoreaccount1/container\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey devstoreaccount1:{signature}"
    request = urllib.request.Request(f"{endpoint}/container?restype=container", method="PUT", headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        assert answer.status == 201
