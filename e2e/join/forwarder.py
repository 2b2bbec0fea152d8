"""Another way to a server, which is there only while this runs: ``python -m e2e.join.forwarder PORT TO_PORT``."""

from __future__ import annotations

import asyncio
import contextlib
import sys

_CHUNK = 1 << 16


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _serve(port: int, to_port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", to_port)
        await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
