"""What both server processes do alike. Standard library only, so that it weighs nothing in their memory."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path


def arguments(line: Sequence[str]) -> tuple[list[str], Path | None]:
    """A server's own words, and the directory of the certificates when there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="+")
    parser.add_argument("--certificates", type=Path)
    parsed = parser.parse_args(line)
    return parsed.words, parsed.certificates


async def serve_until_stdin_ends(address: str) -> None:
    """Tells the address to whoever started this process, and waits until they close the pipe.

    The pipe also closes when they are killed: no server is left behind.
    """
    print(address, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
