"""Key pairs as WireGuard has them: 32 bytes each, in base64."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

__all__ = ["new_pair"]


def new_pair() -> tuple[str, str]:
    """A new private key, and the public one that goes with it."""
    private = X25519PrivateKey.generate()
    halves = (private.private_bytes_raw(), private.public_key().public_bytes_raw())
    return base64.b64encode(halves[0]).decode(), base64.b64encode(halves[1]).decode()
