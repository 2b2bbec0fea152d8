"""A server of operators in a process of its own, which can be killed after it has made an order, before it answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from cloudgraft.admin.methods import engine_methods
from cloudgraft.admin.server import AdminServer
from tests.engine.engine_rig import Rig


async def main(directory: Path, *, is_doomed: bool) -> None:
    rig = Rig(directory)
    await rig.start()
    methods = engine_methods(rig.engine)
    made = methods["Scale"]

    async def scale(request: Mapping[str, object]) -> dict[str, object]:
        answer = await made(request)
        if is_doomed and request["dryRun"] is False:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    server = AdminServer({**methods, "Scale": scale}, directory / "admin.sock")
    await server.start()
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), is_doomed=sys.argv[2] == "doomed"))
