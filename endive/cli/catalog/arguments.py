"""Arguments and options that all commands share, opening a catalog, and hints for unknown names."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from endive.catalog import KVCatalog
from endive.catalog.connection import FOLDER, open_place, url_of
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.namespaces import namespaces_in
from endive.catalog.operations.table_rows import all_tables
from endive.errors import (
    AlreadyInCatalogError,
    ConfigurationError,
    NotInCatalogError,
    ResultError,
    StorageAccessError,
    StorageUnavailableError,
)
from endive.protocol.requests import Steps
from endive.wording import suggestion

Url = Annotated[
    str, typer.Argument(metavar="URL", help="Where the catalog is: a directory, `file:///dir`, `s3://…`, `gs://…`.")
]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="`namespace.table`.")]
Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", envvar="ENDIVE_ENDPOINT", help="Address of an S3-compatible server or emulator."),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="KEY=VALUE",
        help="PyIceberg's properties for reaching files, such as `s3.region=eu-west-1`; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON, for machines.")]

MISSING = "`endive catalog check` says what else is missing"
UNREACHABLE = "see whether its files can be reached from here; --property takes PyIceberg's settings for that"


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return what `KEY=VALUE` texts say, or all that is wrong with them."""
    problems = [f"{text!r} is not KEY=VALUE" for text in texts or () if not text.partition("=")[0].strip()]
    problems += [f"{text!r} has no `=`; write {text}=VALUE" for text in texts or () if "=" not in text and text.strip()]
    if problems:
        raise ConfigurationError(option, problems)
    split = (text.partition("=") for text in texts or ())
    return {key.strip(): value.strip() for key, _, value in split}


def reach(endpoint: str | None, properties: Sequence[str] | None) -> dict[str, str]:
    """Return PyIceberg's properties that the options stand for."""
    return ({"s3.endpoint": endpoint} if endpoint is not None else {}) | pairs(properties, "--property")


def require_lasting(url: str, settings: Mapping[str, str]) -> None:
    """Raise if there cannot be a catalog at a URL, or if it would be gone when the command ends."""
    with as_typed(url):
        shared = open_place(f"{url_of(url)}/{FOLDER}", settings).capabilities.shared
    if not shared:
        raise ConfigurationError(url, ["it would be gone when the command ends; give a directory or a bucket"])


@contextmanager
def as_typed(url: str) -> Iterator[None]:
    """Let errors of reaching a catalog name the URL that was typed, and not the objects below it."""
    try:
        yield
    except ConfigurationError as error:
        within = error.source.startswith(url_of(url))
        raise ConfigurationError(url if within else error.source, error.errors) from error
    except (StorageAccessError, StorageUnavailableError) as error:
        raise type(error)(url, error.problem) from error


@contextmanager
def opened(
    url: str,
    endpoint: str | None = None,
    properties: Sequence[str] | None = None,
    table: str | None = None,
    warehouse: str | None = None,
) -> Iterator[KVCatalog]:
    """Open an existing catalog. An error about an unknown name suggests the nearest; `table`: whose refs to suggest."""
    settings = reach(endpoint, properties)
    require_lasting(url, settings)
    with as_typed(url):
        found = KVCatalog.open(url, warehouse, settings)
    with found as catalog:
        try:
            yield catalog
        except NotInCatalogError as error:
            raise NotInCatalogError(error.kind, error.name, _hint(catalog, error, url, table)) from error
        except AlreadyInCatalogError as error:
            raise AlreadyInCatalogError(error.kind, error.name, _remedy(error, url, table)) from error
        except OSError as error:
            remedy = MISSING if isinstance(error, FileNotFoundError) else UNREACHABLE
            raise ResultError(error.filename or url, error.strerror or str(error), remedy) from error


def _hint(catalog: KVCatalog, error: NotInCatalogError, url: str, table: str | None) -> str:
    """Return a hint for an unknown name."""
    near = suggestion(error.name, _names(catalog, error.kind, table)).removeprefix("; ")
    if error.kind == "Namespace":
        make = f"`{_command('namespaces', url, '--create', error.name)}` makes it"
        return f"{near} Else {make}" if near else make
    listing = {
        "Table": "tables",
        "View": "views",
        "Snapshot": "history",
        "Branch or tag": "show",
        "Checkpoint": "checkpoint",
    }
    subject = (table,) if table is not None and error.kind not in {"Table", "View"} else ()
    command = f"`{_command(listing[error.kind], url, *subject)}` lists what there is"
    return "; ".join(part for part in (error.hint, near) if part) or command


def _remedy(error: AlreadyInCatalogError, url: str, table: str | None) -> str:
    """Return where a name that is taken is, and what can be done."""
    if error.hint:
        return error.hint
    if error.kind == "Namespace":
        return f"`{_command('tables', url, error.name)}` lists what it holds"
    if error.kind == "Checkpoint":
        drop = _command("checkpoint", url, error.name, "--drop")
        return f"choose another name; `{drop}` deletes the existing one"
    if error.kind == "Table":
        show, drop = _command("show", url, error.name), _command("drop", url, error.name)
        return f"choose another name; `{show}` shows the existing one, `{drop}` removes it"
    if error.kind == "View with same name":
        return f"choose another name; `{_command('views', url, '--drop', error.name)}` removes the view"
    return f"choose another name; `{_command('show', url, table or 'TABLE')}` shows where it is, and --drop removes it"


def _command(name: str, *words: str) -> str:
    """Return a command of this group, as it can be typed."""
    return shlex.join(("endive", "catalog", name, *words))


def _names(catalog: KVCatalog, kind: str, table: str | None) -> list[str]:
    if kind == "Table":
        return [text_of(record.identifier) for record in catalog.store.read(all_tables)]
    if kind == "Namespace":
        return [text_of(name) for name in all_namespaces(catalog)]
    if kind == "Checkpoint":
        return [one.name for one in catalog.checkpoints()]
    if kind == "Branch or tag" and table is not None:
        return list(catalog.load_table(table).metadata.refs)
    return []


def all_namespaces(catalog: KVCatalog, inside: Identifier = ()) -> list[Identifier]:
    """Return all namespaces inside one, at any depth and sorted, in one read of the store."""

    def look(tx: StoreTransaction) -> Steps[list[Identifier]]:
        found: list[Identifier] = []
        waiting = [inside]
        while waiting:
            inner = yield from namespaces_in(tx, waiting.pop())
            found += inner
            waiting += inner
        return sorted(found)

    return catalog.store.read(look)
