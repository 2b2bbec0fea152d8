"""What cloud-init is told: by guestinfo, which the guest reads through VMware's tools (its datasource ``VMware``)."""

from __future__ import annotations

import base64
import json
from typing import Final

from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["USER_DATA_LIMIT", "seed"]

USER_DATA_LIMIT: Final = 48 * 1024 - 1  # bytes; in base64 just below the 64 KiB that a guest can read of one value


def seed(spec: MachineSpec) -> dict[str, str]:
    """Advanced settings of the virtual machine. The name of the machine is its host name, and so its node's.

    Raises InvalidArgumentError when the user data is too large; nothing is cut.
    """
    metadata = json.dumps({"instance-id": spec.name, "local-hostname": spec.name})
    found = {"guestinfo.metadata": _base64(metadata.encode()), "guestinfo.metadata.encoding": "base64"}
    if spec.user_data:
        given = spec.user_data.encode()
        if len(given) > USER_DATA_LIMIT:
            raise InvalidArgumentError(
                f"the user data of {spec.name} has {len(given)} bytes, and guestinfo takes {USER_DATA_LIMIT}"
            )
        found |= {"guestinfo.userdata": _base64(given), "guestinfo.userdata.encoding": "base64"}
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
