"""Loads the server, says so, waits for a line on standard input, and then runs ``cloudgraft serve`` with its arguments.

`cloudgraft torture` keeps one of these ready, so that a killed server is back within a fraction of a second.
"""

from __future__ import annotations

import sys

from cloudgraft.cli import serve
from cloudgraft.cli.main import main

__all__ = ["serve"]  # loaded before it is needed

if __name__ == "__main__":
    print("loaded", file=sys.stderr, flush=True)  # noqa: T201 - to the process that waits for it
    if sys.stdin.buffer.readline():
        sys.argv = ["cloudgraft", "serve", *sys.argv[1:]]
        main()
