"""Auto Scaling groups are tested on the same moto as EC2."""

from __future__ import annotations

from tests.drivers.conftest import aws

__all__ = ["aws"]
