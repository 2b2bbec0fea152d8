"""A fake of Hetzner Cloud's API, as far as the driver and its judges use it, over real sockets.

Written from the public API reference. It is ours, and so it proves what we have understood, not what the cloud does.
Its answers were compared with the API's published schema, and Hetzner's own clients for Python and Go work with it.
"""

from __future__ import annotations

from clouds.servers.hetzner_fake.faults import Fault, Kind
from clouds.servers.hetzner_fake.project import Project
from clouds.servers.hetzner_fake.web import FakeHetzner

__all__ = ["FakeHetzner", "Fault", "Kind", "Project"]
