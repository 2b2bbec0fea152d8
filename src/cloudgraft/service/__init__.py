"""Serves the autoscaler's 15 calls over a provider: no transport, no cloud."""

from cloudgraft.service.cloud_provider import Call, CloudProviderService

__all__ = ["Call", "CloudProviderService"]
