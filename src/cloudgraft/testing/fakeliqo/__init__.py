"""Controllers that play Liqo's part on any Kubernetes API, for tests and demos: no packet flows and no pod runs.

They work on :mod:`cloudgraft.testing.kubeapi` and on a real API server, whose kinds :func:`install` defines where
Liqo's own chart did not. ``python -m cloudgraft.testing.fakeliqo`` runs them as a process of their own.
"""

from cloudgraft.testing.fakeliqo.crds import definitions, install, settle
from cloudgraft.testing.fakeliqo.fake import FakeLiqo, Member, playing
from cloudgraft.testing.fakeliqo.script import STEPS, Rules, Script
from cloudgraft.testing.fakeliqo.webhooks import guard_names

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
