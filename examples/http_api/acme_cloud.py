"""A small cloud with an HTTP API, in memory: pages, a list that is late, a quota, and a proxy that loses answers."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--listen", default="127.0.0.1:9400")
parser.add_argument("--token", default="secret-token")
parser.add_argument("--quota", type=int, default=20, help="servers that the account may have")
parser.add_argument("--list-delay", type=float, default=0.5, help="seconds until a new server is in lists")
parser.add_argument("--lose", type=int, default=0, help="answer every Nth create with 503, after it was done")
parser.add_argument("--page", type=int, default=3, help="servers of one page")
options = parser.parse_args()
servers: dict[str, dict[str, Any]] = {}
numbers, creates = itertools.count(1), itertools.count(1)


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_known():
            return
        if order["size"] not in ("small", "large"):
            self.refuse(422, "invalid_size", "there are small and large")
        elif len(servers) >= options.quota:
            self.refuse(403, "limit_reached", f"the account may have {options.quota} servers")
        else:
            ident = f"srv-{next(numbers):06}"
            servers[ident] = {"id": ident, "created": time.time(), **order}
            if options.lose and next(creates) % options.lose == 0:
                self.answer(503, "<html>503 Service Unavailable</html>")  # of a proxy: the server is there
            else:
                self.answer(201, {"server": servers[ident]})

    def do_DELETE(self) -> None:
        if not self.is_known():
            return
        if servers.pop(self.path.rpartition("/")[2], None) is None:
            self.refuse(404, "no_such_server", "it is gone")
        else:
            self.answer(204, "")

    def do_GET(self) -> None:
        if self.is_known():
            after = parse_qs(urlsplit(self.path).query).get("after", [""])[0]
            late = time.time() - options.list_delay
            seen = [one for ident, one in sorted(servers.items()) if ident > after and one["created"] < late]
            page, more = seen[: options.page], len(seen) > options.page
            self.answer(200, {"servers": page, "next": page[-1]["id"] if more else ""})

    def is_known(self) -> bool:
        known = self.headers["Authorization"] == f"Bearer {options.token}"
        if not known:
            self.refuse(401, "unauthorized", "the token is wrong")
        return known

    def refuse(self, status: int, code: str, message: str) -> None:
        self.answer(status, {"error": {"code": code, "message": message}})

    def answer(self, status: int, body: object) -> None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: object = "", size: object = "") -> None:
        """Stays quiet."""


host, _, port = options.listen.partition(":")
api = ThreadingHTTPServer((host, int(port)), Api)
print(f"serving on {host}:{api.server_port}", flush=True)  # noqa: T201 - a program
api.serve_forever()
