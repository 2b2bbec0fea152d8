"""An engine that is driven by hand, with its admin socket, and commands against it in the same process."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml
from click.testing import CliRunner, Result

from cloudgraft.admin.methods import engine_methods
from cloudgraft.admin.server import AdminServer
from cloudgraft.engine.engine import Engine
from tests.engine.engine_rig import Rig


@dataclass
class Operator:
    """Somebody at a terminal, and the server that is asked."""

    rig: Rig
    config: Path  # names the socket

    async def run(self, command: click.Command, *arguments: str, code: int = 0) -> Result:
        """The command in a thread, for it has an event loop of its own."""
        given = [*arguments, "--config", str(self.config)]
        result = await asyncio.to_thread(CliRunner().invoke, command, given)
        assert result.exit_code == code, result.output
        return result

    async def json(self, command: click.Command, *arguments: str, code: int = 0) -> Any:
        result = await self.run(command, *arguments, "-o", "json", code=code)
        return json.loads(result.stdout)


@asynccontextmanager
async def admin_socket(engine: Engine) -> AsyncIterator[Path]:
    """Serves an engine's operators; yields the file by which commands find it.

    The path of a socket must be short, so it has a directory of its own.
    """
    with tempfile.TemporaryDirectory(prefix="cg") as directory:
        socket = Path(directory) / "admin.sock"
        config = Path(directory) / "cloudgraft.yaml"
        # Not a valid configuration: only what says where the server listens is read.
        config.write_text(yaml.safe_dump({"admin": {"listen": f"unix:{socket}"}, "nodeGroups": "nonsense"}))
        server = AdminServer(engine_methods(engine), socket)
        await server.start()
        try:
            yield config
        finally:
            await server.stop(1.0)


@asynccontextmanager
async def operating(rig: Rig) -> AsyncIterator[Operator]:
    """Starts the engine and its admin socket."""
    await rig.start()
    try:
        async with admin_socket(rig.engine) as config:
            yield Operator(rig, config)
    finally:
        await rig.engine.close()
