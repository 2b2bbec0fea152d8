"""Follows five flows through a running server, and prints which modules each passes.

A server (`cloudgraft serve`, grpcio's transport, the simulated cloud) runs in this process. What is counted are the
functions of `src/cloudgraft` that are entered from the beginning of a flow to its end, in all threads; a coroutine that
goes on after a pause, the bodies of modules and classes, and whatever an import runs are not counted. The log is set to
errors only, so that its formatting is no part of the way. The simulated cloud stands for one that is elsewhere: its own
package, with whatever it calls, is counted apart.

What has nothing to do with a flow is kept out in four ways. There is one group with at most one machine, and the cloud
is listed once an hour, except in the flows that wait for a list. What the event loop does while nothing is asked of the
server, such as a look at the journal once a second, is learnt at the beginning and not counted. A flow begins and ends
when the server has been at rest for a moment, and asks whether it is done only when something has happened. And each
flow is walked several times: a module that was not passed every time is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.walk.flows import walk_all
from scripts.walk.page import page, picture
from scripts.walk.result import Walk, judged


def table(walks: Sequence[Walk]) -> Iterator[str]:
    """For people."""
    for walk in walks:
        limit = f" (at most {walk.flow.most_modules} wanted)" if walk.flow.most_modules is not None else ""
        packages = f"{len(walk.packages)} packages ({walk.top_packages} at the top level)"
        yield f"{walk.flow.title}: {len(walk.modules)} modules{limit} in {packages}"
        yield f"  the way changes module {walk.changes} times, {walk.backs} of them back to one that it left before"
        if walk.cloud_modules:
            yield f"  beside them {walk.cloud_modules} modules of the simulated cloud"
        yield f"  packages: {', '.join(f'{name} {len(modules)}' for name, modules in walk.packages.items())}"
        width = max(len(module.name) for module in walk.modules)
        for number, module in enumerate(walk.modules, 1):
            yield f"  {number:3} {module.name:{width}} {module.lines:5} lines"
        yield ""


def main() -> None:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m scripts.walk", description=__doc__, formatter_class=described)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="for people, or programs")
    parser.add_argument("--rounds", type=int, default=3, help="how often each flow is walked (default: 3)")
    parser.add_argument("--page", type=Path, metavar="FILE.md", help="write it as a page, with a picture beside it")
    parser.add_argument("--check", action="store_true", help="exit 1 when a flow passes more modules than it may")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    walks = walk_all(given.rounds)
    if given.output == "json":
        print(json.dumps([walk.to_json() for walk in walks], indent=2))
    else:
        print("\n".join(table(walks)))
    if given.page is not None:
        drawn = given.page.with_suffix(".svg")
        drawn.write_text(picture(walks))
        given.page.write_text(page(walks, drawn.name))
        print(f"{given.page} and {drawn} written", file=sys.stderr)
    too_long = judged(walks) if given.check else []
    for line in too_long:
        print(line, file=sys.stderr)
    sys.exit(1 if too_long else 0)


if __name__ == "__main__":
    main()
