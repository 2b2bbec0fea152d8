"""The whole demo: a real server on loopback with mTLS, a real client, and a day between them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cloudgraft.client import CloudProvider, RemoteProvider
from cloudgraft.demo.calls import CallRecorder, RecordingConnection
from cloudgraft.demo.day import Day
from cloudgraft.demo.engine_world import EngineWorld
from cloudgraft.demo.frame import Presenter, Summary
from cloudgraft.demo.front import Front
from cloudgraft.demo.workload import Wave, waves_of_the_day
from cloudgraft.demo.world import World

__all__ = ["play"]


async def play(
    presenter: Presenter, make_world: Callable[[Path], World] = EngineWorld, waves: Sequence[Wave] | None = None
) -> Summary:
    """Serves a world's provider, plays a day with these waves of work against it, and stops the server again.

    The journal and the certificates are made for this one run, in a directory that is gone afterwards. Raises
    StoryError when the day does not go as it should.
    """
    calls = CallRecorder()
    with tempfile.TemporaryDirectory(prefix="cloudgraft-demo-") as scratch:
        directory = Path(scratch)
        world = make_world(directory)
        async with Front(world, directory / "certs") as front:
            remote = RemoteProvider(RecordingConnection(front.config, calls))
            async with CloudProvider(remote) as client:
                day = Day(
                    world=world,
                    front=front,
                    client=client,
                    calls=calls,
                    presenter=presenter,
                    waves=waves or waves_of_the_day(),
                )
                return await day.play()
