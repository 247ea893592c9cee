"""`endive catalog` on a bucket: the same commands, with nothing but an address more."""

import json
from itertools import count

import pytest
from typer.testing import CliRunner

from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.cli.app import app
from tests.surfaces.lake import SCHEMA, events

_numbers = count()
pytestmark = pytest.mark.slow


def test_a_table_lives_on_a_bucket_from_creation_to_purge(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"s3://bucket/lakes/{next(_numbers)}"
    reach = {"s3.region": "us-east-1"}
    settings = [word for key, value in reach.items() for word in ("-p", f"{key}={value}")]
    monkeypatch.setenv("ENDIVE_ENDPOINT", s3_endpoint)
    # Arrow would send checksums behind what it uploads, which a server without keys takes for a part of it.
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")

    def run(command: str, *words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["catalog", command, url, *words, *settings])
        assert result.exit_code == code, result.output
        return result.stdout

    assert run("tables", code=1) == ""  # there is no catalog yet
    run("init")
    run("namespaces", "--create", "db")
    run("create", "db.events", "--schema", SCHEMA, "--partition", "day(ts)")
    catalog = EndiveCatalog("test", uri=url, **{"s3.endpoint": s3_endpoint}, **reach)
    catalog.load_table("db.events").append(events(0, range(4)))
    catalog.load_table("db.events").append(events(1, range(4, 8)))
    catalog.close()

    found = json.loads(run("files", "db.events", "--where", "id > 5", "--json"))
    assert (len(found["files"]), found["skipped"]["files"], found["from"]) == (1, 1, "records")
    run("set", "db.events", "--add-column", "price long", "owner=ana")
    assert json.loads(run("expire", "db.events", "--older-than", "0s", "--json"))["deleted_files"]
    assert json.loads(run("orphans", "db.events", "--older-than", "0s", "--json"))["files"] == []
    assert "0 findings" in run("check", "--data-files")
    assert run("export", "db.events").startswith(f"{url}/db/events-")
    run("drop", "db.events", "--purge", "--yes")
    assert json.loads(run("tables", "--json")) == []
