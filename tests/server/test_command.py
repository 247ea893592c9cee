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

from endive.catalog import KVCatalog
from endive.cli.app import app
from endive.cli.later import LazyGroup
from endive.cli.serve_file import KEYS
from endive.errors import ConfigurationError, EndiveError
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
        assert process.wait(30) == 0  # its catalogs are closed
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


def problem_of(file: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve", "--config", str(file), *arguments])
    assert isinstance(result.exception, EndiveError), result.output
    return str(result.exception)


def test_everything_wrong_in_a_file_is_said_at_once_and_no_value_is(tmp_path: Path) -> None:
    file = tmp_path / "endive.toml"
    file.write_text(
        'prot = 1\nport = "hunter2"\ncreate = "hunter2"\nnew-token = "hunter2"\n'
        '[warehouses]\na = 3\n[properties]\n"s3.secret-access-key" = ["hunter2"]\n'
    )

    problem = problem_of(file)

    assert "prot: no such option; did you mean 'port'?" in problem
    assert "port: must be a whole number" in problem
    assert "create: must be true or false" in problem
    assert "new-token: no such option" in problem
    assert "warehouses.a: must be a text in quotes" in problem
    assert "properties.s3.secret-access-key: must be a text in quotes" in problem
    assert "hunter2" not in problem
    assert "cannot be read" in problem_of(tmp_path / "none.toml")
    file.write_text("a = = 3")
    assert "cannot be read" in problem_of(file)


def test_a_file_may_have_every_option_that_the_environment_may_have() -> None:
    options = {
        name.removeprefix("--"): option.name
        for option in LazyGroup().get_command(None, "serve").params
        for name in option.opts
        if option.envvar and name.startswith("--")
    }
    del options["config"]

    assert options == {key: parameter for key, (parameter, _) in KEYS.items()}


def test_options_come_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endive.toml").write_text('host = "0.0.0.1"\n[warehouses]\nlake = "nowhere"\n')

    assert "0.0.0.1 can be reached" in problem_of(tmp_path / "endive.toml")
    monkeypatch.setenv("ENDIVE_HOST", "0.0.0.2")
    assert "0.0.0.2 can be reached" in problem_of(tmp_path / "endive.toml")
    assert "0.0.0.3 can be reached" in problem_of(tmp_path / "endive.toml", "--host", "0.0.0.3")


def test_paths_of_a_file_are_beside_it_and_properties_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, dict[str, str]]] = []

    def open_catalog(url: str, _warehouse: None, settings: dict[str, str], _create: bool) -> None:
        opened.append((url, settings))
        raise ConfigurationError(url, ["far enough"])

    monkeypatch.setattr(KVCatalog, "open", open_catalog)
    (tmp_path / "callers.toml").write_text(f'[tokens]\nada = "sha256:{hashed("x")}"\n')
    file = tmp_path / "endive.toml"
    file.write_text(
        f'tokens = "callers.toml"\nhost = "0.0.0.0"\n[warehouses]\nsales = "{tmp_path}/sales"\n'
        '[properties]\n"s3.region" = "eu-west-1"\n"endive.writer" = "exclusive"\n'
    )

    assert "far enough" in problem_of(file, "--property", "s3.region=eu-north-1")
    assert opened == [(f"{tmp_path}/sales", {"s3.region": "eu-north-1", "endive.writer": "exclusive"})]
    assert "far enough" in problem_of(file, f"other={tmp_path}/other")
    assert opened[1][0] == f"{tmp_path}/other"  # warehouses of the command line replace those of the file
