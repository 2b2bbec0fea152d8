"""Calls any externalgrpc server from Python, as the autoscaler does.

- :class:`CloudProvider` behaves as the autoscaler's own Go client does, with its caches; :class:`SyncCloudProvider` is
  the same for programs without an event loop.
- :class:`RemoteProvider` is a server as a plain :class:`cloudgraft.sdk.Provider`, without caches.
- :class:`Connection` makes single calls, message by message.
"""

from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.client.cloud_provider import CloudProvider, GpuConfig, NodeGroup, PricingModel, ResourceLimiter
from cloudgraft.client.connection import Connection
from cloudgraft.client.errors import NotImplementedByProtocolError, error_from_rpc
from cloudgraft.client.remote import RemoteProvider
from cloudgraft.client.sync import SyncCloudProvider, SyncNodeGroup, SyncPricingModel

__all__ = [
    "Address",
    "CloudConfig",
    "CloudProvider",
    "Connection",
    "GpuConfig",
    "NodeGroup",
    "NotImplementedByProtocolError",
    "PricingModel",
    "RemoteProvider",
    "ResourceLimiter",
    "SyncCloudProvider",
    "SyncNodeGroup",
    "SyncPricingModel",
    "error_from_rpc",
]
