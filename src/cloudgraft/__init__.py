"""cloudgraft grafts any cloud onto the Kubernetes Cluster Autoscaler.

An author needs :mod:`cloudgraft.sdk` (the interfaces), :func:`cloudgraft.server.serve` or
:func:`cloudgraft.plugin.serve` (the one line in ``main()``), and :mod:`cloudgraft.testing`.
"""

from cloudgraft._version import __version__

__all__ = ["__version__"]
