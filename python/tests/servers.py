"""Servers in this process: an S3 bucket, and a web server that compares addresses literally."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
WHEN = "Mon, 02 Nov 2026 10:00:00 GMT"


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends the bytes that `found` returns, or the requested part of them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Otherwise a body waits until its head is acknowledged.
    served: Any

    def found(self) -> tuple[int, bytes, dict[str, str]]:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.served.requests.append((self.command, self.path, dict(self.headers)))
        status, body, headers = self.found()
        wanted = self.headers.get("Range")
        total = len(body)
        if status == 200 and wanted and self.command == "GET":
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else total - int(last)
            end = min(int(last) + 1, total) if first and last else total
            status = 206 if start < total else 416
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{total}"
            body = body[start:end]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


@contextmanager
def serving(handler: type[Handler], served: Any) -> Iterator[str]:
    kind = type("Served", (handler,), {"served": served})
    server = Server(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Bucket:
    """Objects by their keys, in a bucket "b". `requests` has the requests so far."""

    def __init__(self, objects: dict[str, bytes] | None = None, page: int = 1000) -> None:
        self.objects = objects or {}
        self.page = page
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""

    @property
    def options(self) -> dict[str, Any]:
        """As s3fs takes them."""
        return {"key": "somebody", "secret": "secret", "endpoint_url": self.url}

    @property
    def settings(self) -> dict[str, str]:
        return {
            "aws_access_key_id": "somebody",
            "aws_secret_access_key": "secret",
            "aws_endpoint": self.url,
        }


class BucketHandler(Handler):
    def found(self) -> tuple[int, bytes, dict[str, str]]:
        split = urlsplit(self.path)
        bucket, _, key = unquote(split.path).removeprefix("/").partition("/")
        if bucket != "b":
            return 404, b"<Error><Code>NoSuchBucket</Code></Error>", {}
        query = {name: values[0] for name, values in parse_qs(split.query, True).items()}
        if "list-type" in query:
            return 200, self.listed(query), {"Content-Type": "application/xml"}
        body = self.served.objects.get(key)
        if body is None:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
        tag = self.tag(body)
        if self.headers.get("If-Match") not in (None, tag):
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        return 200, body, {"ETag": tag, "Last-Modified": WHEN}

    @staticmethod
    def tag(body: bytes) -> str:
        return f'"{hashlib.md5(body).hexdigest()}"'

    def listed(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(int(query.get("max-keys", 1000)), self.served.page)
        told: list[str] = []
        parts: dict[str, str] = {}
        last = ""
        for key, body in sorted(self.served.objects.items()):
            if not key.startswith(prefix):
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            name = prefix + head + found if found else key
            if name <= after or name in parts:
                continue
            if len(parts) == most:
                told.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
                break
            last = name
            parts[name] = (
                f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
                if found
                else f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size>"
                f"<ETag>{escape(self.tag(body))}</ETag>"
                "<LastModified>2026-11-02T10:00:00.000Z</LastModified></Contents>"
            )
        cut = "true" if told else "false"
        told = [f"<IsTruncated>{cut}</IsTruncated>", *told, *parts.values()]
        return f'<ListBucketResult xmlns="{NAMESPACE}">{"".join(told)}</ListBucketResult>'.encode()


@contextmanager
def bucket(objects: dict[str, bytes] | None = None, page: int = 1000) -> Iterator[Bucket]:
    """A running server of a bucket."""
    served = Bucket(objects, page)
    with serving(BucketHandler, served) as served.url:
        yield served


class Web:
    """Bytes by the literal path and query of a request. `requests` has the requests so far."""

    def __init__(self, pages: dict[str, bytes]) -> None:
        self.pages = pages
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""


class WebHandler(Handler):
    def found(self) -> tuple[int, bytes, dict[str, str]]:
        body = self.served.pages.get(self.path)
        if body is None:
            return 404, b"", {}
        return 200, body, {"ETag": BucketHandler.tag(body), "Last-Modified": WHEN}


@contextmanager
def web(pages: dict[str, bytes]) -> Iterator[Web]:
    """A running web server."""
    served = Web(pages)
    with serving(WebHandler, served) as served.url:
        yield served
