"""Plays Liqo's controllers on any Kubernetes API, for the demo and for tests: no packet flows and no pod runs.

They work on :mod:`cloudgraft.demo.fake_kubernetes` and on a real API server that has Liqo's kinds.
"""

from cloudgraft.demo.fake_liqo.cluster import Rules
from cloudgraft.demo.fake_liqo.fake import FakeLiqo, Member, guard_names, playing, settle

__all__ = ["FakeLiqo", "Member", "Rules", "guard_names", "playing", "settle"]
