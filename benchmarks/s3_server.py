"""An S3 server in memory that records its requests: how many there were, and how many had to follow one another.

    with running_server() as server:
        catalog = EndiveCatalog("lake", uri="s3://bucket/lake", **server.properties)
        server.take_requests()
        table.append(rows)
        print(summary(server.take_requests()))

It runs in a process of its own, so that its CPU time is not the client's. It has what obstore and Arrow use: objects,
conditional creates, ranges, listings, multipart uploads. Signatures are not checked.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

CONTROL = "/-/"
"""Paths that control the server; they are not recorded."""
MODIFIED = formatdate(usegmt=True)


@dataclass(frozen=True)
class Recorded:
    """A request that the server answered."""

    what: str
    """Such as `PUT t/metadata/00001.metadata.json`."""
    start_s: float
    end_s: float


def summary(requests: Sequence[Recorded]) -> dict[str, int]:
    """Return the number of requests, and the length of the longest chain in which each began after the one before."""
    return {"requests": len(requests), "sequential": sequential(requests)}


def sequential(requests: Sequence[Recorded]) -> int:
    """Return how many requests followed one another. With a latency set, requests sent at once overlap."""
    count, last_end_s = 0, float("-inf")
    for one in sorted(requests, key=lambda each: each.end_s):
        if one.start_s >= last_end_s:
            count, last_end_s = count + 1, one.end_s
    return count


@dataclass(frozen=True)
class CountingServer:
    """A running server."""

    url: str

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties that lead to the server."""
        return {
            "s3.endpoint": self.url,
            "s3.region": "us-east-1",
            "s3.access-key-id": "any",
            "s3.secret-access-key": "any",
        }

    def take_requests(self) -> list[Recorded]:
        """Return the requests since the last call."""
        return [Recorded(*one) for one in self._control("requests")]

    def set_latency(self, seconds: float) -> None:
        """Let every answer take at least so long."""
        self._control(f"latency/{seconds}")

    def sizes(self) -> dict[str, int]:
        """Return the size of every object, by bucket and key."""
        found: dict[str, int] = self._control("sizes")
        return found

    def _control(self, what: str) -> Any:  # noqa: ANN401 - JSON
        with urllib.request.urlopen(f"{self.url}{CONTROL}{what}", timeout=60) as answer:  # noqa: S310 - loopback
            return json.load(answer)


@contextmanager
def running_server() -> Iterator[CountingServer]:
    """Start a server on the loopback interface, and stop it at the end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.s3_server", str(port)])
    server = CountingServer(f"http://127.0.0.1:{port}")
    try:
        _await(server)
        yield server
    finally:
        process.terminate()
        process.wait()


def _await(server: CountingServer) -> None:
    deadline_s = time.monotonic() + 60
    while True:
        try:
            server.take_requests()
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return


class _Bucket:
    """The objects of all buckets, by bucket and key."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.recorded: list[Recorded] = []
        self.latency_s = 0.0
        self.lock = Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    bucket = _Bucket()

    def log_message(self, *_: object) -> None:
        """Do not write to standard error."""

    def handle_expect_100(self) -> bool:
        """Let the client send the body; the answer would stay in the buffer otherwise."""
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def _answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _begin(self) -> tuple[str, dict[str, list[str]], bytes]:
        self.start_s = time.monotonic()
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" in self.headers.get("Content-Encoding", "") or self.headers.get(
            "x-amz-decoded-content-length"
        ):
            body = _unchunked(body)
        return unquote(parts.path)[1:], parse_qs(parts.query, keep_blank_values=True), body

    def _end(self, path: str, what: str = "") -> None:
        time.sleep(self.bucket.latency_s)
        self.bucket.recorded.append(Recorded(f"{what or self.command} {path}", self.start_s, time.monotonic()))

    def do_GET(self) -> None:
        if self.path.startswith(CONTROL):
            return self._control()
        path, query, _ = self._begin()
        if "list-type" in query:
            self._end(path, "LIST")
            return self._list(path.strip("/"), query)
        body = self.bucket.objects.get(path)
        self._end(path)
        if body is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        span = self.headers.get("Range")
        if span is None:
            return self._answer(200, body, _facts(body))
        first, last = span.removeprefix("bytes=").split("-")
        start = int(first) if first else len(body) - int(last)
        end = min(int(last) + 1 if first and last else len(body), len(body))
        shown = f"bytes {start}-{end - 1}/{len(body)}"
        return self._answer(206, body[start:end], {"Content-Range": shown, **_facts(body)})

    def do_HEAD(self) -> None:
        path, _, _ = self._begin()
        self._end(path)
        body = self.bucket.objects.get(path)
        if body is None and "/" in path.strip("/"):
            return self._answer(404)
        return self._answer(200, b"", _facts(body or b""), len(body or b""))

    def do_PUT(self) -> None:
        path, query, body = self._begin()
        with self.bucket.lock:
            if "uploadId" in query:
                self.bucket.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
            elif self.headers.get("If-None-Match") == "*" and path in self.bucket.objects:
                self._end(path)
                return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            elif "/" in path.strip("/"):
                self.bucket.objects[path] = body
        self._end(path, "PART" if "uploadId" in query else "")
        return self._answer(200, b"", _facts(body))

    def do_POST(self) -> None:
        path, query, body = self._begin()
        self._end(path)
        if "uploads" in query:
            with self.bucket.lock:
                upload = f"upload-{len(self.bucket.uploads)}"
                self.bucket.uploads[upload] = {}
            return self._answer(200, f"<R><UploadId>{upload}</UploadId></R>".encode())
        if "uploadId" in query:
            parts = self.bucket.uploads[query["uploadId"][0]]
            self.bucket.objects[path] = b"".join(parts[number] for number in sorted(parts))
            return self._answer(200, b'<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')
        deleted = ""
        for part in body.decode().split("<Key>")[1:]:
            name = part.partition("</Key>")[0]
            self.bucket.objects.pop(f"{path.strip('/')}/{unescape(name)}", None)
            deleted += f"<Deleted><Key>{name}</Key></Deleted>"
        return self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        path, _, _ = self._begin()
        self.bucket.objects.pop(path, None)
        self._end(path)
        self._answer(204)

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix, page = f"{bucket}/{query.get('prefix', [''])[0]}", int(query.get("max-keys", ["1000"])[0])
        keys = sorted(key for key in list(self.bucket.objects) if key.startswith(prefix))
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        keys = keys[bisect_right(keys, f"{bucket}/{after}") :] if after else keys
        names = [key.removeprefix(f"{bucket}/") for key in keys[:page]]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag>"
            f"<Size>{len(self.bucket.objects.get(f'{bucket}/{name}', b''))}</Size></Contents>"
            for name in names
        )
        is_more = len(keys) > page
        more = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if is_more else ""
        head = f"<IsTruncated>{str(is_more).lower()}</IsTruncated><KeyCount>{len(names)}</KeyCount>"
        self._answer(200, f"<ListBucketResult>{head}{rows}{more}</ListBucketResult>".encode())

    def _control(self) -> None:
        what = self.path.removeprefix(CONTROL)
        reply: Any = None
        if what == "requests":
            taken, self.bucket.recorded[:] = list(self.bucket.recorded), []
            reply = [(one.what, one.start_s, one.end_s) for one in taken]
        elif what == "sizes":
            reply = {key: len(body) for key, body in list(self.bucket.objects.items())}
        else:
            self.bucket.latency_s = float(what.removeprefix("latency/"))
        self._answer(200, json.dumps(reply).encode())


def _facts(body: bytes) -> dict[str, str]:
    return {"ETag": f'"{md5(body, usedforsecurity=False).hexdigest()}"', "Last-Modified": MODIFIED}


def _unchunked(body: bytes) -> bytes:
    """Return the content of an upload in signed chunks."""
    found = bytearray()
    while body:
        head, _, rest = body.partition(b"\r\n")
        size = int(head.partition(b";")[0] or b"0", 16)
        if not size:
            break
        found += rest[:size]
        body = rest[size + 2 :]
    return bytes(found)


def requests_by_kind(requests: Sequence[Recorded]) -> dict[str, int]:
    """Return the number of requests by method."""
    return dict(Counter(one.what.partition(" ")[0] for one in requests))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def main() -> None:
    """Serve until stopped."""
    _Server(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()


if __name__ == "__main__":
    main()
