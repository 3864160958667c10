"""An S3 of one bucket in this process: what the job over traces uses of it, signatures, pages and refusals included.

A real double of AWS's server from PyPI would bring 29 packages and 139 MB, and checks no signatures. This one was held
against two others by the same calls: moto 5.2 and versitygw 1.8.
"""

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

REGION: Final = "eu-west-1"
KEY_ID: Final = "regnum-tests"
SECRET: Final = "not/a+secret"  # noqa: S105 - of this double


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An object."""

    content: bytes
    modified_s: float
    """Since 1970."""


@dataclass(slots=True, kw_only=True)
class Bucket:
    """What is in it, and how it misbehaves."""

    name: str = "traces-of-ours"
    objects: dict[str, Stored] = field(default_factory=dict)
    page: int = 1000
    """Keys in an answer."""
    denied: Callable[[str, str], bool] = lambda _method, _key: False
    """Who may not, by method and key."""
    breaks: dict[str, list[int]] = field(default_factory=dict)
    """Key -> after how many bytes each of the next reads breaks off."""
    silent: threading.Event | None = None
    """While it is given, requests wait for it before they are answered."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and key of every request that was signed right, in order."""

    def put(self, key: str, content: bytes, modified_s: float | None = None) -> None:
        """Lay something in."""
        self.objects[key] = Stored(content=content, modified_s=time.time() if modified_s is None else modified_s)


@contextmanager
def served(bucket: Bucket) -> Iterator[dict[str, str]]:
    """Serve it; hands out the variables with which it is found."""
    uploads: dict[str, dict[int, bytes]] = {}

    class Handler(_Handler):
        of = bucket
        parts = uploads

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="s3")
    thread.start()
    try:
        yield {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_address[1]}",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
    finally:
        if bucket.silent is not None:
            bucket.silent.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    of: Bucket
    parts: dict[str, dict[int, bytes]]

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the names of the library

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.of.silent is not None:
            self.of.silent.wait(60)
        url = urlsplit(self.path)
        name, _, key = unquote(url.path.removeprefix("/")).partition("/")
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if refused := self._signature(url.path, query):
            return self._error(HTTPStatus.FORBIDDEN, refused)
        self.of.asked.append((self.command, key or query.get("prefix", "")))
        if name != self.of.name:
            self._error(HTTPStatus.NOT_FOUND, "NoSuchBucket")
        elif self.of.denied(self.command, key or query.get("prefix", "")):
            self._error(HTTPStatus.FORBIDDEN, "AccessDenied")
        else:
            self._allowed(key, query, body)
        return None

    def _allowed(self, key: str, query: Mapping[str, str], body: bytes) -> None:
        if self.command == "GET" and not key:
            return self._list(query)
        if self.command == "GET":
            return self._get(key)
        if self.command == "PUT":
            return self._put(key, query, body)
        if self.command == "POST":
            return self._post(key, query)
        self.of.objects.pop(key, None)
        return self._send(HTTPStatus.NO_CONTENT, b"")

    def _list(self, query: Mapping[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", "")
        keys = sorted(key for key in list(self.of.objects) if key.startswith(prefix))
        folders = {prefix + rest.partition(delimiter)[0] + delimiter
                   for key in keys if delimiter and delimiter in (rest := key.removeprefix(prefix))}  # fmt: skip
        keys = [key for key in keys if key > after and not any(key.startswith(folder) for folder in folders)]
        shown, more = keys[: self.of.page], keys[self.of.page :]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(one.modified_s)}</LastModified>"
            f'<ETag>"x"</ETag><Size>{len(one.content)}</Size><StorageClass>STANDARD</StorageClass></Contents>'
            for key in shown
            if (one := self.of.objects.get(key))
        )
        items += "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        if more:
            items += f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>"
        self._xml(f"<ListBucketResult><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{items}</ListBucketResult>")

    def _get(self, key: str) -> None:
        stored = self.of.objects.get(key)
        if stored is None:
            return self._error(HTTPStatus.NOT_FOUND, "NoSuchKey")
        content, status, headers = (
            stored.content,
            HTTPStatus.OK,
            {"Last-Modified": _http(stored.modified_s), "ETag": '"x"'},
        )
        if wanted := self.headers.get("range"):
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            last = min(int(end), len(content) - 1) if end else len(content) - 1
            headers["Content-Range"] = f"bytes {begin}-{last}/{len(content)}"
            content, status = content[int(begin) : last + 1], HTTPStatus.PARTIAL_CONTENT
        if broken := self.of.breaks.get(key):
            self._send(status, content, headers, only=broken.pop(0))
            self.close_connection = True
            return None
        return self._send(status, content, headers)

    def _put(self, key: str, query: Mapping[str, str], body: bytes) -> None:
        if "partNumber" in query:
            self.parts[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.of.put(key, body)
        self._send(HTTPStatus.OK, b"", {"ETag": '"x"'})

    def _post(self, key: str, query: Mapping[str, str]) -> None:
        if "uploads" in query:
            upload = str(len(self.parts))
            self.parts[upload] = {}
            return self._xml(
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = self.parts.pop(query["uploadId"])
        self.of.put(key, b"".join(parts[number] for number in sorted(parts)))
        return self._xml('<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')

    def _signature(self, path: str, query: Mapping[str, str]) -> str | None:
        """What is wrong with the signature (AWS signature version 4); None when it is right."""
        kind, _, rest = self.headers.get("authorization", "").partition(" ")
        if kind != "AWS4-HMAC-SHA256":
            return "AccessDenied"
        told = dict(part.strip().split("=", 1) for part in rest.split(","))
        key_id, day, region, service, end = told["Credential"].split("/")
        if key_id != KEY_ID:
            return "InvalidAccessKeyId"
        signed = told["SignedHeaders"].split(";")
        request = "\n".join(
            [
                self.command,
                path,
                "&".join(f"{quote(key, '')}={quote(query[key], '')}" for key in sorted(query)),
                *(f"{name}:{' '.join((self.headers.get(name) or '').split())}" for name in signed),
                "",
                told["SignedHeaders"],
                self.headers["x-amz-content-sha256"],
            ]
        )
        scope = f"{day}/{region}/{service}/{end}"
        text = f"{kind}\n{self.headers['x-amz-date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{SECRET}".encode()
        for part in (day, REGION, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        right = hmac.digest(key, text.encode(), "sha256").hex()
        return None if hmac.compare_digest(right, told["Signature"]) else "SignatureDoesNotMatch"

    def _error(self, status: HTTPStatus, code: str) -> None:
        self._xml(f"<Error><Code>{code}</Code><Message>{status.phrase}</Message></Error>", status)

    def _xml(self, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(
            status, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"}
        )

    def _send(
        self, status: HTTPStatus, content: bytes, headers: Mapping[str, str] | None = None, *, only: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:only])


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _http(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
