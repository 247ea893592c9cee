"""`endive serve`: Iceberg's REST catalog."""

import logging
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from endive.catalog import KVCatalog
from endive.cli.catalog.arguments import Endpoint, Properties, as_typed, reach, require_lasting
from endive.cli.console import errors, output, warn
from endive.cli.serve_file import file_settings, read_file
from endive.cli.serve_traces import opened_tracing
from endive.errors import ConfigurationError
from endive.logs import LogForm, show_logs
from endive.server.access import Callers, new_token
from endive.server.application import Application
from endive.server.asgi import Asgi, Limits
from endive.server.audit import audit_to
from endive.server.events import Webhook, posting
from endive.server.routes import ROOTS
from endive.server.running import LOOPBACK, is_loopback, listen, server_of, url_of
from endive.server.storage.delegation import Delegation
from endive.server.storage.signing import Signer
from endive.server.storage.vending import Vending

SECRET_BYTES_MIN = 16
PORT = 8181
"""The port of Iceberg's own examples."""


def serve(
    context: typer.Context,
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL…", help="A directory or a bucket; `NAME=URL` to serve several, each a warehouse of its name."
        ),
    ] = None,
    config: Annotated[  # noqa: ARG001 - its callback has made its values the defaults of the others
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="ENDIVE_CONFIG",
            callback=read_file,
            is_eager=True,
            help="TOML file with these options by name, and tables `[warehouses]` and `[properties]`; options and "
            "the environment take precedence.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(envvar="ENDIVE_HOST", help="Address to listen on. All but loopback need `--tokens`.")
    ] = LOOPBACK,
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="ENDIVE_PORT", help="Port to listen on; 0: any free one.")
    ] = PORT,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="ENDIVE_TOKENS",
            help="TOML file of callers: hashes of bearer tokens, groups, an identity provider (OpenID Connect).",
        ),
    ] = None,
    add_token: Annotated[
        str | None,
        typer.Option("--new-token", metavar="NAME", help="Print a new token and its line for FILE, and end."),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="ENDIVE_TLS_CERTIFICATE", help="Certificate chain (PEM), for HTTPS."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="ENDIVE_TLS_KEY", help="Private key (PEM) of the certificate."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", envvar="ENDIVE_CREATE", help="Create a catalog where there is none.")
    ] = False,
    threads: Annotated[
        int, typer.Option(min=1, envvar="ENDIVE_THREADS", help="Requests that run at the same time.")
    ] = Limits.threads,
    logs: Annotated[
        LogForm | None, typer.Option("--log", envvar="ENDIVE_LOG", help="Write logs to standard error.")
    ] = None,
    vend_role: Annotated[
        str | None,
        typer.Option(
            metavar="ARN",
            envvar="ENDIVE_VEND_ROLE",
            help="Give clients temporary keys for the files of a table: this role, by STS, restricted to its folder.",
        ),
    ] = None,
    sts_endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="ENDIVE_STS_ENDPOINT", help="Address of an STS that is not Amazon's."),
    ] = None,
    sign_requests: Annotated[
        bool,
        typer.Option(
            "--sign-requests",
            envvar="ENDIVE_SIGN_REQUESTS",
            help="Sign clients' requests for the files of a table, where no STS is.",
        ),
    ] = False,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="ENDIVE_WEBHOOK",
            help="POST an event for every commit, at least once; needs `--webhook-secret`.",
        ),
    ] = None,
    webhook_secret: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="ENDIVE_WEBHOOK_SECRET",
            help="File with the secret that signs events (HMAC-SHA256).",
        ),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="ENDIVE_AUDIT_LOG",
            help="Append which caller changed what, or was refused: a JSON object a line.",
        ),
    ] = None,
    traces: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="ENDIVE_TRACES",
            help="Send traces by OTLP over HTTP to this collector; `OTEL_…` variables configure the rest.",
        ),
    ] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
) -> None:
    """Serve catalogs by Iceberg's REST protocol: for Spark SQL, Trino, Flink, DuckDB, PyIceberg and others.

    `endive serve s3://bucket/lake`, then in a client: `type=rest`, `uri=http://127.0.0.1:8181`. Without `--tokens`
    everybody on this machine may do everything, and no other machine is let in. With `--tokens` a caller may do what
    `endive catalog grant` has granted.
    """
    if add_token is not None:
        token, line = new_token(add_token)
        output.print(f"token: {token}\nfor the file, under [tokens]: {line}", soft_wrap=True)
        return
    file = file_settings(context)
    named = _warehouses(urls or [f"{name}={url}" for name, url in file.warehouses.items()])
    known = Callers.load(tokens) if tokens is not None else None
    _require_safe(host, known, tls_certificate, tls_key)
    settings = {**file.properties, **reach(endpoint, properties)}
    if logs is not None:
        show_logs(logs, sys.stderr, logging.INFO)
    if audit_log is not None:
        audit_to(audit_log)
    with ExitStack() as stack:
        catalogs = {}
        for name, url in named.items():
            require_lasting(url, settings)
            with as_typed(url):
                catalogs[name] = stack.enter_context(KVCatalog.open(url, None, settings, create))
        delegation = Delegation(
            Vending.with_boto3(vend_role, sts_endpoint, settings) if vend_role is not None else None,
            Signer.with_botocore(settings) if sign_requests else None,
        )
        application = Application(catalogs, known, delegation=delegation)
        application.warm_up()
        tracing = opened_tracing(traces, "http" if tls_certificate is None else "https")
        if tracing is not None:
            stack.enter_context(tracing)
        asgi = Asgi(application, Limits(threads=threads), tracing.answered if tracing is not None else None)
        if webhook is not None:
            stack.enter_context(_webhook(webhook, webhook_secret, catalogs)).start()
        listening = stack.enter_context(listen(host, port))
        server = server_of(asgi, tls_certificate, tls_key)
        address = url_of(listening)
        if tls_certificate is not None:
            address = address.replace("http://", "https://", 1)
        for name, catalog in catalogs.items():
            errors.print(f"warehouse {name}: {catalog.url}", soft_wrap=True)
            if known is not None and not catalog.grants.list():
                words = f"nobody has a grant in {name}, so that every request is refused"
                warn((f"{words}: `endive catalog grant {catalog.url} NAME manage` makes an administrator",))
        if known is None:
            warn(("no authentication: every process on this machine may read and change everything",))
        errors.print(f"listening on {address}; Ctrl-C ends it", soft_wrap=True)
        stack.callback(asgi.close)
        # uvicorn drains, and raises the signal again: without a handler it would end the process with catalogs open.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        server.run(sockets=[listening])


def _webhook(url: str, secret: Path | None, catalogs: dict[str, KVCatalog]) -> Webhook:
    """Return the sender of events. Its name in the catalog is that of its receiver, which goes on where it was."""
    try:
        key = secret.read_bytes().strip() if secret is not None else b""
    except OSError as error:
        raise ConfigurationError("--webhook-secret", [f"{secret} cannot be read: {error.strerror}"]) from error
    if len(key) < SECRET_BYTES_MIN or not url.startswith(("https://", "http://")):
        problem = f"needs https://… and --webhook-secret with a file of at least {SECRET_BYTES_MIN} bytes"
        raise ConfigurationError("--webhook", [problem])
    return Webhook(catalogs, url, posting(url, key))


def _warehouses(urls: list[str]) -> dict[str, str]:
    """Return URLs by the names of their warehouses."""
    if not urls:
        raise ConfigurationError(
            "endive serve", ["a URL is missing: a directory or a bucket, or a file with [warehouses] by --config"]
        )
    named: dict[str, str] = {}
    problems = []
    for text in urls:
        name, is_named, url = text.partition("=")
        if not is_named or "/" in name:
            name, url = ("lake" if len(urls) == 1 else text.rstrip("/").rpartition("/")[2]), text
        if name in named:
            problems.append(f"two warehouses are called {name!r}: write NAME=URL")
        if name in ROOTS or not name or "/" in name:
            problems.append(f"{name!r} cannot be the name of a warehouse: write NAME=URL")
        named[name] = url
    if problems:
        raise ConfigurationError("endive serve", problems)
    return named


def _require_safe(host: str, tokens: Callers | None, certificate: Path | None, key: Path | None) -> None:
    """Refuse to let other machines in without authentication."""
    problems = []
    if tokens is None and not is_loopback(host):
        problems.append(f"{host} can be reached from other machines: give --tokens FILE, or listen on {LOOPBACK}")
    if (certificate is None) != (key is None):
        problems.append("--tls-certificate and --tls-key belong together")
    if problems:
        raise ConfigurationError("endive serve", problems)
    if certificate is None and not is_loopback(host):
        warn(("no TLS: tokens can be read on the way; give --tls-certificate and --tls-key, or put a proxy in front",))
