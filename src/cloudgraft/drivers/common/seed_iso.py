"""Builds the seed CD of cloud-init's NoCloud source, from which a machine reads its user data at boot.

It is an ISO 9660 image with the label ``cidata``, and holds ``user-data``, ``meta-data`` and, if given,
``network-config``. It holds secrets, as user data does: store it where no one else can read it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Final

import pycdlib

LABEL: Final = "cidata"  # by which cloud-init finds it, on any device
_LEVEL: Final = 3  # of ISO 9660; the names that count are those of Rock Ridge and Joliet


def seed_iso(*, name: str, user_data: str, network_config: Mapping[str, object] | None = None) -> bytes:
    """Builds the image for one machine, whose name is its instance id and its host name.

    ``network_config`` is cloud-init's, version 1 or 2; without it the image decides, mostly DHCP.
    """
    files = {
        "user-data": user_data.encode(),
        "meta-data": _yaml({"instance-id": name, "local-hostname": name}),
    }
    if network_config is not None:
        files["network-config"] = _yaml(network_config)
    return _image(files)


def _yaml(data: Mapping[str, object]) -> bytes:
    """Writes JSON, which is valid YAML."""
    return json.dumps(data, indent=1).encode() + b"\n"


def _image(files: Mapping[str, bytes]) -> bytes:
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=_LEVEL, vol_ident=LABEL, joliet=_LEVEL, rock_ridge="1.09")
    for name, content in files.items():
        short = name.replace("-", "").upper()[:8]  # for readers without Rock Ridge and Joliet
        iso.add_fp(
            io.BytesIO(content), len(content), f"/{short}.;1", rr_name=name, joliet_path=f"/{name}", file_mode=0o100444
        )
    image = io.BytesIO()
    iso.write_fp(image)
    iso.close()
    return image.getvalue()
