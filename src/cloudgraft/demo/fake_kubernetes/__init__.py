"""Runs a small Kubernetes API server in this process, over real HTTP or TLS, for tests and demos.

It keeps to the rules of the real one wherever our code could notice; :class:`KubeApi` says which. Several can run at a
time, each on a port of its own.
"""

from cloudgraft.demo.fake_kubernetes.resources import Json, RefusedError, Request, Resource, Resources
from cloudgraft.demo.fake_kubernetes.server import TOKEN, KubeApi, User
from cloudgraft.demo.fake_kubernetes.store import Store

__all__ = ["TOKEN", "Json", "KubeApi", "RefusedError", "Request", "Resource", "Resources", "Store", "User"]
