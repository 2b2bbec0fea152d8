"""A fake of Proxmox VE's API, as far as the driver and its judges use it, over real sockets, with or without TLS.

Written from the public API schema and from what Proxmox's own sources do: tasks that take time, a clone that has no
name at first, names and states that are told late, locks, and errors as sentences. It is ours, and so it proves what
we have understood, not what Proxmox does: no real Proxmox was used.
"""

from __future__ import annotations

from clouds.servers.proxmox_fake.cluster import Cluster
from clouds.servers.proxmox_fake.faults import Fault, Kind
from clouds.servers.proxmox_fake.web import FakeProxmox

__all__ = ["Cluster", "FakeProxmox", "Fault", "Kind"]
