"""Auto Scaling groups are tested on the same moto as EC2."""

from __future__ import annotations
