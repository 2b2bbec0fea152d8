"""Stands in for a registry: which program of this machine is in an image, and how the image says that it is to be run.

cloudgraft's is that of this tree, in the environment that this runs in, with what deploy/Dockerfile says about user,
directory and environment. `make test-image` judges the image itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs.terminal import ROOT

__all__ = ["Image", "images"]

_DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
_AUTOSCALER: Final = "registry.k8s.io/autoscaling/cluster-autoscaler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Files of this machine that a container sees, and what it runs."""

    files: Mapping[str, Path]  # by their path in the container; read-only
    entrypoint: Sequence[str] = ()
    directory: str = "/"
    environment: Mapping[str, str]


def images(autoscaler: Path, tag: str) -> Mapping[str, Image]:
    """By name and tag, cloudgraft's by the end of its name only: everybody has a registry of their own."""
    return {
        "/cloudgraft": _own(),
        f"{_AUTOSCALER}:{tag}": Image(
            files={"/cluster-autoscaler": autoscaler}, environment={"PATH": "/usr/bin:/bin"}, directory="/"
        ),
    }


def _own() -> Image:
    last = _DOCKERFILE.read_text("utf-8").rpartition("\nFROM ")[2]
    environment = dict(re.findall(r"(\w+)=(\S+)", _said(last, "ENV")))
    environment["PATH"] = environment["PATH"].replace("$PATH", "/usr/bin:/bin")
    (entrypoint,) = re.findall(r'\["(\w+)"\]', _said(last, "ENTRYPOINT"))
    python = Path(sys.base_prefix)
    files = {"/opt/cloudgraft": Path(sys.prefix), str(ROOT): ROOT, sys.prefix: Path(sys.prefix)}
    if not python.is_relative_to("/usr"):
        files[str(python)] = python
    return Image(files=files, entrypoint=(entrypoint,), directory=_said(last, "WORKDIR"), environment=environment)


def _said(stage: str, instruction: str) -> str:
    (found,) = re.findall(rf"^{instruction} (.+)$", stage, re.MULTILINE)
    return str(found)
