"""``cloudgraft`` as a process whose HTTPS server asks at the gate before and after every step.

python -m tests.liqo.sweep.liqo_kill_child SOCKET NAME discovery serve --config FILE
"""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloudgraft.cli.main import cloudgraft
from cloudgraft.web.listener import WebListener

_STEP = re.compile(r"/v1/(?:reservations|clusters|nodegroups)(?:/[^/:]+)?[/:]?([A-Za-z]*)")


def step_of(method: str, path: str) -> str:
    """A word for what is asked; empty for what is no step of a peering."""
    found = _STEP.fullmatch(path)
    word = found[1] if found else ""
    if method == "GET":
        return word if word == "credentials" else ""
    if path.startswith("/v1/reservations"):
        return {"POST": word or "reserve", "DELETE": "release"}.get(method, "")
    return word if word in {"increase", "deleteNodes"} else ""


class _Asking:
    def __init__(self, app: ASGIApp, socket: str, name: str) -> None:
        self._app = app
        self._socket = socket
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        step = step_of(scope["method"], scope["path"]) if scope["type"] == "http" else ""
        if not step:
            await self._app(scope, receive, send)
            return
        if await self._ask("before", step) != b"go\n":
            await PlainTextResponse("", 503)(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._ask("after", step)
            await send(message)

        await self._app(scope, receive, answer)

    async def _ask(self, when: str, step: str) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(f"{when} {self._name} {step}\n".encode())
        answer = await reader.readline()
        writer.close()
        return answer


def main(socket: str, name: str, words: list[str]) -> None:
    class Gated(WebListener):
        def __init__(self, app: ASGIApp, **settings: Any) -> None:
            super().__init__(_Asking(app, socket, name), **settings)

    server = {"discovery": "discovery_server", "node-manager": "node_manager"}[words[0]]
    vars(importlib.import_module(f"cloudgraft.app.{server}"))["WebListener"] = Gated
    cloudgraft(words)


if __name__ == "__main__":
    arguments: list[Any] = sys.argv[1:]
    main(arguments[0], arguments[1], arguments[2:])
