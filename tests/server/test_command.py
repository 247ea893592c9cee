"""`endive serve` as a process."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from endive.cli.app import app
from endive.errors import EndiveError
from endive.server.access import hashed


@pytest.mark.slow
def test_it_serves_until_it_is_asked_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "endive", "serve", str(tmp_path / "lake"), "--create", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "listening on" in line:
                break
        url = lines[-1].split()[2].rstrip(";")
        for _ in range(100):
            try:
                with urlopen(f"{url}/v1/config") as answer:  # noqa: S310 - our own server
                    assert json.load(answer)["endpoints"]
                break
            except OSError:
                time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    assert any("no authentication" in line for line in lines)


def test_mistakes_are_explained(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")

    def problem(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["serve", *arguments])
        assert isinstance(result.exception, EndiveError), result.output
        return str(result.exception)

    assert "can be reached from other machines: give --tokens" in problem(lake, "--host", "0.0.0.0")  # noqa: S104
    assert "belong together" in problem(lake, "--tls-key", "key.pem")
    assert "there is no catalog here" in problem(lake)
    assert "a URL is missing" in problem()
    assert "two warehouses are called 'a'" in problem("a=x", "a=y")
    assert "'tables' cannot be the name" in problem("tables=x")


def test_a_token_is_printed_once_with_its_hash() -> None:
    printed = CliRunner().invoke(app, ["serve", "--new-token", "ada"]).output

    token = printed.splitlines()[0].removeprefix("token: ")
    assert f'"ada" = "sha256:{hashed(token)}"' in printed
