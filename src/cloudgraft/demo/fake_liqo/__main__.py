"""Plays Liqo between real or small API servers, as a process of its own, until a signal ends it.

python -m cloudgraft.demo.fake_liqo --consumer kubeconfig --provider cluster-a=kubeconfig-a --script script.json
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path

from cloudgraft.demo.fake_liqo import FakeLiqo, Member, install, settle
from cloudgraft.kube.connect import connect
from cloudgraft.sdk.errors import CloudgraftError


def main(arguments: list[str] | None = None) -> int:
    """Runs it; the exit code is 1 when an API cannot be used at the start."""
    options = _options().parse_args(arguments)
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING)
    try:
        asyncio.run(_play(options))
    except CloudgraftError as error:
        print(f"fakeliqo: {error}", file=sys.stderr)  # noqa: T201 - a program's own message
        return 1
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cloudgraft.demo.fake_liqo", description="Plays Liqo.")
    parser.add_argument("--consumer", type=Path, required=True, help="kubeconfig of the cluster that gets nodes")
    parser.add_argument("--consumer-id", default="consumer", help="its Liqo cluster id")
    parser.add_argument("--provider", action="append", default=[], metavar="ID=KUBECONFIG", help="may be repeated")
    parser.add_argument("--script", type=Path, help="a JSON file with delays, refusals and so on; may change")
    parser.add_argument("--renew-leases", action="store_true", help="where a controller manager watches leases")
    parser.add_argument("--dead-after", type=float, default=2.0, help="seconds of silence that mean a dead provider")
    parser.add_argument("--verbose", action="store_true")
    return parser


async def _play(options: argparse.Namespace) -> None:
    members = [Member(id=options.consumer_id, client=connect(options.consumer))]
    for said in options.provider:
        name, _, path = said.partition("=")
        members.append(Member(id=name, client=connect(Path(path))))
    try:
        for member in members:
            await install(member.client)
            await settle(member.client, member.id)
        fake = FakeLiqo(
            members[0],
            members[1:],
            script_file=options.script,
            renew_leases=options.renew_leases,
            dead_after=options.dead_after,
        )
        await _until_told(fake)
    finally:
        for member in members:
            await member.client.close()


async def _until_told(fake: FakeLiqo) -> None:
    task = asyncio.create_task(fake.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    print("playing Liqo", flush=True)  # noqa: T201 - shows the caller that it is ready
    with suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    sys.exit(main())
