"""Which parts of a kubeconfig must be shown nowhere."""

from __future__ import annotations

import re
from typing import Final

from cloudgraft.sdk.secrecy import hide

__all__ = ["hide_kubeconfig"]

_SECRET: Final = re.compile(r"""["']?(?:token|password|client-key-data)["']?\s*:\s*["']?([^\s"',}]+)""")


def hide_kubeconfig(text: str) -> None:
    """Hides tokens, passwords and private keys of a kubeconfig from every log line and error of this process."""
    hide(*_SECRET.findall(text))
