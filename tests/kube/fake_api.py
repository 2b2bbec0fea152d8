"""The small Kubernetes API server, by the name that these tests know it by."""

from __future__ import annotations

from cloudgraft.demo.fake_kubernetes import TOKEN, Json, Request
from cloudgraft.demo.fake_kubernetes import KubeApi as FakeApi

__all__ = ["TOKEN", "FakeApi", "Json", "Request"]
