"""moto as a process of its own: it keeps the instances of EC2 and the groups of Auto Scaling, in memory."""

from __future__ import annotations

import json
import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Final

from e2e.processes import Program, free_ports
from e2e.waiting import until

__all__ = ["IMAGE", "REGION", "ROOT_DEVICE", "MotoServer"]

IMAGE: Final = "ami-0c0ffee0c0ffee000"  # the only one: reading moto's own thousand takes seconds
ROOT_DEVICE: Final = "/dev/xvda"
REGION: Final = "us-east-1"
_SERVE: Final = "import sys; from moto.server import main; main(sys.argv[1:])"
_SECONDS_TO_START: Final = 60.0


class MotoServer(Program):
    """A cloud for one run. Unlike moto by itself, it refuses images and instance types that do not exist."""

    def __init__(self, directory: Path) -> None:
        (self.port,) = free_ports(1)
        images = directory / "images.json"
        images.write_text(json.dumps([_image()]), "utf-8")
        super().__init__(
            f"moto {version('moto')}",
            [sys.executable, "-c", _SERVE, "-H", "127.0.0.1", "-p", str(self.port)],
            directory / "moto.log",
            environment={
                "MOTO_AMIS_PATH": str(images),
                "MOTO_ENABLE_AMI_VALIDATION": "true",
                "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
            },
        )

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        super().start()
        until(self._answers, f"moto answers ({self.log})", seconds=_SECONDS_TO_START, check=self.check)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/moto-api/data.json", timeout=10.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _image() -> dict[str, object]:
    return {
        "ami_id": IMAGE,
        "name": "nodes",
        "description": "",
        "owner_id": "123456789012",
        "public": True,
        "virtualization_type": "hvm",
        "architecture": "x86_64",
        "state": "available",
        "platform": None,
        "image_type": "machine",
        "hypervisor": "xen",
        "root_device_name": ROOT_DEVICE,
        "root_device_type": "ebs",
        "sriov": "simple",
        "creation_date": "2026-01-01T00:00:00.000Z",
    }
