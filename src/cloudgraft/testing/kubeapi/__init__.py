"""A small Kubernetes API server in this process, over real HTTP or TLS, for tests and demos.

It keeps to the rules of the real one wherever our code could notice; :class:`KubeApi` says which. Several can run at a
time, each on a port of its own.
"""

from cloudgraft.testing.kubeapi.calls import Request
from cloudgraft.testing.kubeapi.refusals import Json, RefusedError
from cloudgraft.testing.kubeapi.resources import Resource, Resources
from cloudgraft.testing.kubeapi.server import TOKEN, KubeApi
from cloudgraft.testing.kubeapi.store import Store
from cloudgraft.testing.kubeapi.users import User

__all__ = ["TOKEN", "Json", "KubeApi", "RefusedError", "Request", "Resource", "Resources", "Store", "User"]
