"""An endpoint on this machine that speaks as a test wants: to try judges on.

with serving() as endpoint:
    endpoint.replies = [says("yes"), raw(b"", 503)]     the last one goes on for ever
    ...
    endpoint.bodies                                     what it was asked
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Endpoint:
    """What it was asked, and how it replies; the last reply goes on for ever.

    Args:
        judge: replies to a request's body instead.
    """

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    judge: Callable[[dict[str, Any]], Reply] | None = None


def raw(body: bytes, status: int = 200, **headers: str) -> Reply:
    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def says(text: Any, model: Any = "pirate-judge-v2") -> Reply:
    return raw(json.dumps({"model": model, "choices": [{"message": {"content": text}}]}).encode())


def drips(sent: bytes, before: bytes = b"") -> Reply:
    """A byte every tenth of a second, for as long as somebody listens."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        try:
            handler.wfile.write(before)
            for _ in range(100):
                handler.wfile.write(sent)
                handler.wfile.flush()
                time.sleep(0.1)
        except OSError:
            return

    return reply


@contextmanager
def serving() -> Iterator[Endpoint]:
    """An endpoint, as long as the block runs."""
    told = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.bodies.append(body)
            told.headers.append(dict(self.headers))
            told.paths.append(self.path)
            scripted = (
                told.replies.pop(0) if len(told.replies) > 1 else told.replies[0] if told.replies else says("yes")
            )
            (told.judge(body) if told.judge else scripted)(self)

        def do_GET(self) -> None:
            told.paths.append(f"GET {self.path}")
            says("yes")(self)

        def log_message(self, format: str, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    told.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
