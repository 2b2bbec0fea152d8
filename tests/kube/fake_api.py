"""The small Kubernetes API server, by the name that these tests know it by."""

from __future__ import annotations

from cloudgraft.testing.kubeapi import TOKEN, Json, Request
from cloudgraft.testing.kubeapi import KubeApi as FakeApi

__all__ = ["TOKEN", "FakeApi", "Json", "Request"]
