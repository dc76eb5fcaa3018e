"""A small server that speaks the Hub's protocol on loopback, for the unmodified ``huggingface_hub`` client.

    python -m tests.hub.server DATA --port 8099 [--lfs-threshold BYTES] [--die-after-bytes N] [--no-copy]

It keeps a model Hub's rules as the client can see them: tokens and roles, private and gated repositories, the LFS
threshold and .gitattributes, signed storage links on another origin that refuse credentials, sha256 of every large
file, parent commits, pull requests, card metadata. It has no Xet (the token route answers 404), no web pages, no
datasets and no Spaces. What it saw is one line per request in ``DATA/requests.jsonl``, without any credentials.
``--die-after-bytes`` ends the process as ``kill -9`` would, once so many bytes of large files have arrived.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hub.routes import ROUTES
from tests.hub.store import REGULAR_LIMIT, Account, HubStore, Refusal


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self,
        data: Path,
        port: int,
        *,
        lfs_threshold: int = REGULAR_LIMIT,
        die_after_bytes: int | None = None,
        copies: bool = True,
    ) -> None:
        super().__init__(("127.0.0.1", port), Exchange)
        self.store = HubStore(data)
        self.lfs_threshold = lfs_threshold
        self.bytes_left = die_after_bytes
        self.copies = copies
        self.tells_card = True
        self.log = threading.Lock()
        self.one_upload = threading.Lock()
        self.secret = b"signs links of this data folder"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sign(self, *parts: Any) -> str:
        return hmac.new(self.secret, "\0".join(map(str, parts)).encode(), hashlib.sha256).hexdigest()


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub  # type: ignore[assignment]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_any(self) -> None:
        """One large file at a time, up to its line in the log: then a server that dies leaves a log that is true."""
        with self.server.one_upload if self.command == "PUT" else contextlib.nullcontext():
            self.received, self.status = 0, 0
            url = urlsplit(self.path)
            self.query = parse_qs(url.query)
            try:
                self.answer(url.path)
            except Refusal as refusal:
                self.rfile.read(max(0, int(self.headers.get("Content-Length") or 0) - self.received))
                self.reply(refusal.status, {"error": refusal.message}, refusal.code, refusal.message)
            with self.server.log, (self.server.store.root / "requests.jsonl").open("a") as log:
                line = {"method": self.command, "path": url.path, "status": self.status, "received": self.received}
                log.write(json.dumps(line) + "\n")

    def answer(self, path: str) -> None:
        for methods, pattern, route in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in methods:
                return route(self, **{name: unquote(value or "") for name, value in match.groupdict().items()})
        raise Refusal(404, "", "Sorry, we can't find the page you are looking for.")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    # what every route needs

    @property
    def store(self) -> HubStore:
        return self.server.store

    def account(self) -> Account | None:
        value = self.headers.get("Authorization")
        return self.store.account(value.removeprefix("Bearer ") if value else None)

    def member(self) -> Account:
        account = self.account()
        if account is None:
            raise Refusal(401, "", "Invalid username or password.")
        return account

    def chunks(self) -> Iterator[bytes]:
        length = self.headers.get("Content-Length")
        if length is None and self.headers.get("Transfer-Encoding") != "chunked":
            return
        left = int(length) if length is not None else int(self.rfile.readline().strip() or b"0", 16)
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            if not piece:
                raise ConnectionError
            left -= len(piece)
            self.received += len(piece)
            yield piece
            if not left and length is None:
                self.rfile.readline()
                left = int(self.rfile.readline().strip() or b"0", 16)

    def json(self) -> Any:
        try:
            return json.loads(b"".join(self.chunks()))
        except ValueError:
            raise Refusal(400, "", "Invalid JSON") from None

    def reply(self, status: int, value: Any, code: str = "", message: str = "", **headers: str) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.begin(status, len(body), **{"Content-Type": "application/json; charset=utf-8"}, **headers)
        if code:
            self.send_header("X-Error-Code", code)
        if message:
            self.send_header("X-Error-Message", re.sub(r"[^ -~]", " ", message)[:300])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: int, length: int, **headers: str) -> None:
        self.status = status
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name, value)

    def send_file(self, path: Path, etag: str, **headers: str) -> None:
        size = path.stat().st_size
        start, end, status = 0, size - 1, 200
        if match := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            status = 206
            first, last = match.groups()
            start = int(first) if first else max(0, size - int(last))
            end = min(size - 1, int(last)) if first and last else size - 1
            if start > end:
                raise Refusal(416, "", "Range not satisfiable")
            headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        self.begin(status, end - start + 1, ETag=f'"{etag}"', **{"Accept-Ranges": "bytes"}, **headers)
        self.end_headers()
        if self.command == "HEAD":
            return
        with path.open("rb") as file:
            file.seek(start)
            left = end - start + 1
            while left and (piece := file.read(min(left, 1 << 18))):
                self.wfile.write(piece)
                left -= len(piece)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lfs-threshold", type=int, default=REGULAR_LIMIT)
    parser.add_argument("--die-after-bytes", type=int)
    parser.add_argument("--no-copy", action="store_true")
    given = parser.parse_args()
    server = Hub(
        given.data,
        given.port,
        lfs_threshold=given.lfs_threshold,
        die_after_bytes=given.die_after_bytes,
        copies=not given.no_copy,
    )
    print(server.endpoint, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
