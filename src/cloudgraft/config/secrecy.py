"""Secrets that a file holds although they should be in one of their own: at least they are shown nowhere."""

from __future__ import annotations

from cloudgraft.sdk.secrecy import hide
from cloudgraft.sdk.secret_names import secret_values

__all__ = ["hide_secrets"]


def hide_secrets(options: object) -> None:
    """Hides whatever is below a key that says that it is secret, in the options of somebody else's code."""
    hide(*secret_values(options))
