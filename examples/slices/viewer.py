"""Look at planes of a cube in an HDF5 file, in a browser: foretell run python viewer.py cube.h5.

It serves a page at http://127.0.0.1:8765. Drag through the planes; those ahead are disclosed to foretell, if it listens: under
`foretell run`, or with the file on a foretell mount. Without it, the viewer works at the pace of the storage.
"""

import argparse
import contextlib
import errno
import ipaddress
import json
import os
import re
import signal
import socket
import sys
import time
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

try:
    from cube import AXES, Cube, Refused
except ImportError as error:
    sys.exit(f"viewer: {error.name} is needed: pip install {error.name}")

PAGE = Path(__file__).with_name("page")
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/script.js": ("script.js", "text/javascript; charset=utf-8"),
}


class Server(ThreadingHTTPServer):
    """Serves one cube to any number of pages."""

    daemon_threads = True  # A read that waits for storage does not keep the program.

    def __init__(self, cube: Cube, host: str, port: int) -> None:
        self.cube, self.host = cube, host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line what went wrong; a page that went away is no error."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            print(f"viewer: {type(error).__name__}: {error}", file=sys.stderr)

    def is_host(self, named: str) -> bool:
        """Whether a page may call the server so. Others may be made to point here by somebody's name server."""
        name = urllib.parse.urlsplit(f"//{named}").hostname or ""
        if not is_loopback(self.host):
            return True
        return name in ("localhost", self.host) or is_loopback(name)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Answer with a file of the page, with the cube's description, or with a plane."""
        self._answer({"/api/cube": self._cube, "/api/plane": self._plane})

    def do_POST(self) -> None:
        """Take note that a page was left."""
        self._answer({"/api/leave": self._leave})

    def _answer(self, calls: dict[str, Any]) -> None:
        if self.headers.get("Content-Length", "0") != "0":
            self.close_connection = True  # A body is not looked at.
        place = urllib.parse.urlsplit(self.path)
        try:
            if not self.server.is_host(self.headers.get("Host", "")):
                self._refuse(
                    HTTPStatus.FORBIDDEN, "this name of the server is not known; use its address"
                )
            elif place.path in calls:
                calls[place.path](Query(place.query))
            elif place.path in FILES and self.command == "GET":
                name, kind = FILES[place.path]
                self._send((PAGE / name).read_bytes(), kind)
            else:
                self._refuse(HTTPStatus.NOT_FOUND, f"there is no {place.path}")
        except Refused as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except ConnectionError:
            raise
        except Exception as error:  # The file cannot be read, say.
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _cube(self, query: "Query") -> None:
        self._send(json.dumps(self.server.cube.described()).encode(), "application/json")

    def _plane(self, query: "Query") -> None:
        cube = self.server.cube
        axis = query.number("axis", 0, 2)
        at = query.number("at", 0, cube.shape[axis] - 1)
        toward, has_hints = query.number("toward", -1, 1, 0), query.number("hints", 0, 1, 0)
        with cube.lock:
            hints = cube.hints_of(query.viewer())
            began = time.perf_counter()
            if hints and has_hints:
                hints.steer(axis, at, toward)
            elif hints:
                hints.cancel()
            plane = cube.plane(axis, at)
            told = {
                "ms": round(1000 * (time.perf_counter() - began), 2),
                "told": hints.told if hints else [],
                "ahead": hints.ahead if hints else [],
                "problem": hints.problem if hints else None,
            }
        self._send(plane.tobytes(), "application/octet-stream", {"Slice": json.dumps(told)})

    def _leave(self, query: "Query") -> None:
        with self.server.cube.lock:
            self.server.cube.leave(query.viewer())
        self._send(b"", "text/plain")

    def _refuse(self, code: HTTPStatus, line: str) -> None:
        self._send((" ".join(line.split()) + "\n").encode(), "text/plain; charset=utf-8", code=code)

    def _send(
        self,
        body: bytes,
        kind: str,
        more: dict[str, str] | None = None,
        code: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        self.send_response(code)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "default-src 'self'; img-src 'self' data:",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in {**headers, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class Query:
    """What follows the question mark of an address."""

    def __init__(self, text: str) -> None:
        self._values = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))

    def number(self, name: str, least: int, most: int, otherwise: int | None = None) -> int:
        """Return a whole number within limits."""
        text = self._values.get(name)
        if text is None and otherwise is not None:
            return otherwise
        if (
            text is None
            or not re.fullmatch(r"-?[0-9]{1,9}", text)
            or not least <= int(text) <= most
        ):
            raise Refused(f"{name} must be a whole number from {least} to {most}")
        return int(text)

    def viewer(self) -> str:
        """Return the name of the page that asks."""
        name = self._values.get("viewer", "")
        if not re.fullmatch(r"[0-9a-z]{0,32}", name):
            raise Refused("viewer must have small letters and digits, 32 at most")
        return name


def is_loopback(name: str) -> bool:
    """Whether it is an address of this machine only."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def parse(words: list[str]) -> argparse.Namespace:
    """Understand the command line."""
    parser = argparse.ArgumentParser(
        description="Look at planes of a cube in an HDF5 file, in a browser."
    )
    parser.add_argument("file", type=Path, help="the HDF5 file")
    parser.add_argument(
        "--dataset", metavar="NAME", help="a data set of three dimensions; by default, the largest"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at (127.0.0.1: this machine only)",
    )
    parser.add_argument(
        "--port", type=int, default=8765, help="the port (8765); 0 takes a free one"
    )
    given = parser.parse_args(words)
    if not 0 <= given.port < 1 << 16:
        parser.error(f"--port {given.port} is not from 0 to 65535")
    return given


def main(words: list[str]) -> int:
    """Serve until Ctrl-C, which ends the program with 0."""
    given = parse(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cube = Cube(given.file, given.dataset)
        server = Server(cube, given.host, given.port)
    except Refused as error:
        print(f"viewer: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        why = "it is in use; --port 0 takes a free one" if in_use else error.strerror or error
        print(f"viewer: {given.host}, port {given.port}: {why}", file=sys.stderr)
        return 1
    host = f"[{given.host}]" if ":" in given.host else given.host
    sides = ", ".join(f"{axis} {side}" for axis, side in zip(AXES, cube.shape, strict=True))
    print(
        f"http://{host}:{server.server_port} shows {cube.data.name.lstrip('/')} ({sides}); Ctrl-C ends",
        flush=True,
    )
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    server.server_close()
    cube.close(timeout_s=1)
    # A thread may still be in h5py, and the interpreter's end would wait for its lock as long as a read waits for storage. A
    # thread that ends after HDF5 has cleaned up may crash.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
