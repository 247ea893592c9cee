"""How clients reach a table's files: with keys of their own, with temporary keys, or by signed requests."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from endive.catalog.model.grants import Privilege
from endive.catalog.operations.tables_in_store import LoadedTable
from endive.server.access.guard import Guard
from endive.server.errors import HttpError, not_acceptable
from endive.server.http import Request
from endive.server.storage.folders import folders_of
from endive.server.storage.signing import NEEDS_NO_WRITE, Signed, Signer
from endive.server.storage.vending import Vending

HEADER = "x-iceberg-access-delegation"
NO_STORE = {"cache-control": "no-store"}


@dataclass(frozen=True)
class Access:
    """What an answer adds, so that a client reaches a table's files."""

    config: dict[str, str] = field(default_factory=dict)
    credentials: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Delegation:
    """What a server offers; by default nothing: clients have keys of their own."""

    vending: Vending | None = None
    signer: Signer | None = None

    def access(self, guard: Guard, request: Request, loaded: LoadedTable) -> Access:
        """Return what a client asked for by Iceberg's header, as far as the server offers it."""
        asked = {one.strip() for one in request.headers.get(HEADER, "").split(",")}
        if self.vending is not None and "vended-credentials" in asked:
            try:
                return Access(credentials=self.credentials(guard, loaded))
            except HttpError as error:
                if error.status == 406:  # not in a bucket: the client needs no keys
                    return Access()
                raise
        if self.signer is not None and "remote-signing" in asked:
            return Access(_signer_config(request.path.strip("/").partition("/namespaces")[0], loaded))
        return Access()

    def credentials(self, guard: Guard, loaded: LoadedTable) -> list[dict[str, Any]]:
        """Return temporary keys for a table's folders, to write if the caller may write."""
        if self.vending is None:
            return []
        folders = folders_of(loaded.metadata.location, loaded.metadata.properties)
        writes = guard.may_on(Privilege.WRITE, "table", loaded.identifier)
        config = self.vending.keys(guard.principal.name, folders, writes).config
        return [{"prefix": one.location, "config": config} for one in folders]

    def sign(
        self,
        guard: Guard,
        loaded: LoadedTable,
        method: str,
        uri: str,
        headers: dict[str, list[str]],
        body: str | None,
    ) -> Signed:
        """Return a signed request to a table's files."""
        if self.signer is None:
            raise not_acceptable("remote signing: its operator starts it with --sign-requests")
        if method not in NEEDS_NO_WRITE:
            guard.require_on(Privilege.WRITE, "table", loaded.identifier)
        folders = folders_of(loaded.metadata.location, loaded.metadata.properties)
        return self.signer.sign(method, uri, headers, body, folders)


NO_DELEGATION = Delegation()


def _signer_config(path: str, loaded: LoadedTable) -> dict[str, str]:
    namespace = quote("\x1f".join(loaded.identifier[:-1]), safe="")
    return {
        "s3.remote-signing-enabled": "true",
        "s3.signer": "S3V4RestSigner",
        "s3.signer.endpoint": f"{path}/namespaces/{namespace}/tables/{quote(loaded.identifier[-1], safe='')}/sign",
    }
