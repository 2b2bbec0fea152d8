"""The small Kubernetes API server, by the name that these tests know it by."""

from __future__ import annotations

from tests.kube_api import TOKEN, Json, Request
from tests.kube_api import KubeApi as FakeApi

__all__ = ["TOKEN", "FakeApi", "Json", "Request"]
