"""``cloudgraft node-manager`` as a process that dies, when told to, after a change is committed and before its answer.

python -m tests.nodemanager.killable_manager CONFIG DIES_IF_THERE
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fastapi import Response

from cloudgraft.cli.node_manager import command
from cloudgraft.nodemanager.api import app as routes_front
from cloudgraft.nodemanager.changes import Outcome
from cloudgraft.nodemanager.manager import Manager


def main(config: str, dies_if_there: Path) -> None:
    answer = routes_front._made

    async def killed(manager: Manager, group: str, made: Outcome, since: str) -> Response:
        if os.path.exists(dies_if_there):  # noqa: ASYNC240, PTH110 - it blocks for no time worth telling
            os.kill(os.getpid(), signal.SIGKILL)
        return await answer(manager, group, made, since)

    routes_front._made = killed
    command(["--config", config])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
