"""Signs single requests to S3 for clients without keys: Iceberg's remote signing.

A request is signed only if it stays inside the table's folders, is one that readers and writers of tables need, and
carries no header that would reach elsewhere: `x-amz-copy-source` reads another object with the server's keys, and
`x-amz-acl` opens an object to the world.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit
from xml.etree import ElementTree

from endive.extras import naming_extra
from endive.server.errors import HttpError, bad_request, try_again
from endive.server.storage.folders import Folder, inside

UNSIGNED = "UNSIGNED-PAYLOAD"
OBJECT_QUERY = {
    "GET": {"x-id", "partNumber"},
    "HEAD": {"x-id", "partNumber"},
    "PUT": {"x-id", "partNumber", "uploadId"},
    "POST": {"x-id", "uploads", "uploadId"},
    "DELETE": {"x-id", "uploadId"},
}
"""Parameters of requests to an object. Others, such as `acl` and `tagging`, change what an object is."""
LIST_QUERY = {
    "x-id", "list-type", "prefix", "delimiter", "continuation-token", "max-keys", "start-after", "encoding-type",
}  # fmt: skip
DELETE_QUERY = {"x-id", "delete"}
HEADERS = re.compile(
    r"x-amz-(content-sha256|date|decoded-content-length|checksum-.*|sdk-.*|trailer|te|meta-.*|storage-class|user-agent"
    r"|server-side-encryption.*)"
)
"""Headers of Amazon's that may be signed."""
DROPPED = {"authorization", "x-amz-security-token", "host"}
NEEDS_NO_WRITE = ("GET", "HEAD")
AMAZON = re.compile(r"(?:(?P<bucket>[a-z0-9.-]+)\.)?s3[.-][a-z0-9-]+\.amazonaws\.com(\.cn)?")


@dataclass(frozen=True)
class Signed:
    """A signed request."""

    uri: str
    headers: dict[str, list[str]]


class Signer:
    """Signs with the server's keys. `endpoint`: of an S3-compatible server; empty: Amazon's."""

    def __init__(self, endpoint: str, region: str, keys: Any) -> None:  # noqa: ANN401 - botocore has no types
        self._endpoint = urlsplit(endpoint) if endpoint else None
        self._region = region
        self._keys = keys

    @classmethod
    def with_botocore(cls, properties: Mapping[str, str]) -> "Signer":
        """Return a signer with the catalog's keys, or those of the machine."""
        with naming_extra("aws"):
            from boto3.session import Session  # noqa: PLC0415 - an extra, which most servers do without
        session = Session(
            aws_access_key_id=properties.get("s3.access-key-id"),
            aws_secret_access_key=properties.get("s3.secret-access-key"),
            aws_session_token=properties.get("s3.session-token"),
            region_name=properties.get("s3.region") or properties.get("client.region"),
        )
        region = session.region_name or "us-east-1"
        return cls(properties.get("s3.endpoint", ""), region, session.get_credentials())

    def sign(
        self, method: str, uri: str, headers: Mapping[str, Sequence[str]], body: str | None, folders: Sequence[Folder]
    ) -> Signed:
        """Return a signed request; 403 if it does not stay inside the folders."""
        try:
            place = urlsplit(uri)
            bucket, key = self._object(place)
        except ValueError as error:  # no port, or no address
            raise _refused(uri) from error
        payload = _checked(method, place, bucket, key, body, folders)
        sent = _sent(headers)
        from botocore.auth import S3SigV4Auth  # noqa: PLC0415 - an extra
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415

        if self._keys is None:
            raise try_again("The server has no keys for the bucket")
        request = AWSRequest(method, uri, headers=sent)
        request.context["payload_signing_enabled"] = False
        auth = S3SigV4Auth(self._keys.get_frozen_credentials(), "s3", self._region)
        auth.payload = lambda _: payload or sent.get("x-amz-content-sha256") or UNSIGNED
        auth.add_auth(request)
        return Signed(request.url, {name: [value] for name, value in request.headers.items()})

    def _object(self, place: SplitResult) -> tuple[str, str]:
        """Return the bucket and the key of a URI: both in its path, or the bucket in its host."""
        host, path = place.hostname or "", unquote(place.path).lstrip("/")
        if place.username or place.fragment or "\\" in path or "\0" in path:
            raise _refused(place.geturl())
        if self._endpoint is None:
            found = AMAZON.fullmatch(host)
            if found is None or place.scheme != "https" or place.port not in (None, 443):
                raise _refused(place.geturl())
            named = found["bucket"]
        else:
            own = self._endpoint.hostname or ""
            if (place.scheme, place.port) != (self._endpoint.scheme, self._endpoint.port):
                raise _refused(place.geturl())
            if host != own and not host.endswith(f".{own}"):
                raise _refused(place.geturl())
            named = host.removesuffix(own).rstrip(".") or None
        if named:
            return named, path
        bucket, _, key = path.partition("/")
        return bucket, key


def _checked(
    method: str, place: SplitResult, bucket: str, key: str, body: str | None, folders: Sequence[Folder]
) -> str | None:
    """Check a request; return the hash that its body must have, or None if the body does not matter."""
    query = parse_qsl(place.query, keep_blank_values=True)
    names = {name for name, _ in query}
    if key:
        if names <= OBJECT_QUERY.get(method, set()) and method in OBJECT_QUERY and inside(folders, bucket, key):
            return None
    elif method == "GET" and names <= LIST_QUERY:
        prefixes = [value for name, value in query if name == "prefix"]
        if len(prefixes) == 1 and inside(folders, bucket, prefixes[0]):
            return None
    elif method == "POST" and body is not None and "delete" in names and names <= DELETE_QUERY:
        keys = _deleted(body)
        if all(inside(folders, bucket, one) for one in keys):
            return hashlib.sha256(body.encode()).hexdigest()  # so that no other body fits the signature
    raise _refused(place._replace(query="").geturl())


def _deleted(body: str) -> list[str]:
    """Return the keys in the body of a request that deletes several objects."""
    if "<!" in body or "<?" in body.lstrip()[2:]:
        raise bad_request("The body has a document type, a comment or an instruction")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - without document types nothing can be expanded
    except ElementTree.ParseError as error:
        raise bad_request(f"The body is not XML: {error}") from error
    keys = [one for one in root.iter() if one.tag.rpartition("}")[2] == "Key"]
    if any(len(one) for one in keys):  # stores differ in what they make of text after an inner element
        raise bad_request("A key has elements inside")
    found = [one.text or "" for one in keys]
    if not found:
        raise bad_request("The body names no objects")
    return found


def _sent(headers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the headers to be signed; 403 for those that reach elsewhere."""
    found = {name.lower(): ", ".join(values) for name, values in headers.items() if name.lower() not in DROPPED}
    for name, value in found.items():
        if name.startswith("x-amz-") and not HEADERS.fullmatch(name):
            raise HttpError(403, "ForbiddenException", f"A request with the header {name} is not signed")
        if "\n" in value or "\r" in value:
            raise bad_request(f"The header {name} has a line break")
    return found


def _refused(uri: str) -> HttpError:
    return HttpError(403, "ForbiddenException", f"The request is not one for files of the table: {uri}")
