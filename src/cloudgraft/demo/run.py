"""The whole demo: a real server on loopback with mTLS, a real client, and a day between them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from cloudgraft.client import Address, CloudConfig, CloudProvider, RemoteProvider
from cloudgraft.demo.calls import CallRecorder, RecordingConnection
from cloudgraft.demo.day import Day
from cloudgraft.demo.frame import Presenter, Summary
from cloudgraft.demo.workload import Wave, waves_of_the_day
from cloudgraft.demo.world import MemoryWorld, World
from cloudgraft.sdk.errors import InternalError
from cloudgraft.server.serve import ServeOptions
from cloudgraft.testing.harness import Served, serving

__all__ = ["play"]

_GRACE = 2.0  # seconds that calls in flight get when the demo is interrupted


async def play(presenter: Presenter, world: World | None = None, waves: Sequence[Wave] | None = None) -> Summary:
    """Serves the world's provider, plays a day with these waves of work against it, and stops the server again.

    Certificates are made for this one run, in a directory that is gone afterwards. Raises StoryError when the day
    does not go as it should.
    """
    world = world or MemoryWorld()
    calls = CallRecorder()
    with tempfile.TemporaryDirectory(prefix="cloudgraft-demo-") as directory:
        certificates = Path(directory) / "certs"
        async with serving(world.provider, ServeOptions(grace=_GRACE), mtls_in=certificates) as served:
            remote = RemoteProvider(RecordingConnection(_config(served), calls))
            async with CloudProvider(remote) as client:
                day = Day(
                    world=world,
                    client=client,
                    calls=calls,
                    presenter=presenter,
                    address=served.address,
                    waves=waves or waves_of_the_day(),
                )
                return await day.play()


def _config(served: Served) -> CloudConfig:
    """What the autoscaler's cloud-config would say."""
    bundle = served.certificates
    if bundle is None:
        raise InternalError("the demo's server has no certificates")
    return CloudConfig(
        address=Address.parse(served.address),
        key=str(bundle.client_key),
        cert=str(bundle.client_cert),
        cacert=str(bundle.ca_cert),
    )
