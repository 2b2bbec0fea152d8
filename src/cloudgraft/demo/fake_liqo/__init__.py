"""Plays Liqo's controllers on any Kubernetes API, for tests and demos: no packet flows and no pod runs.

They work on :mod:`cloudgraft.demo.fake_kubernetes` and on a real API server, whose kinds :func:`install` defines where
Liqo's own chart did not. ``python -m cloudgraft.demo.fake_liqo`` runs them as a process of their own.
"""

from cloudgraft.demo.fake_liqo.crds import definitions, guard_names, install, settle
from cloudgraft.demo.fake_liqo.fake import FakeLiqo, Member, playing
from cloudgraft.demo.fake_liqo.script import STEPS, Rules, Script

__all__ = [
    "STEPS",
    "FakeLiqo",
    "Member",
    "Rules",
    "Script",
    "definitions",
    "guard_names",
    "install",
    "playing",
    "settle",
]
