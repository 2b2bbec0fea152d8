"""Has the template for Talos judged by Talos' own code: its parser and its validation, from the Go module."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from pathlib import Path
from typing import Final

from cloudgraft.certs.issue import Validity, new_authority
from cloudgraft.joining.claims import JoinPlan, NewMachine, ready_made
from cloudgraft.joining.user_data import UserDataMaker
from cloudgraft.sdk.types import Taint
from e2e.build import Recipe, Tell, build

__all__ = ["check_talos"]

_MODULE: Final = "github.com/siderolabs/talos/pkg/machinery"
_VERSION: Final = "v1.11.0"
_SOURCE: Final = Path(__file__).with_name("talos.go")


def check_talos(directory: Path, tell: Tell) -> None:
    """Raises AssertionError when it finds a mistake or has a warning, or takes a broken config for a good one."""
    checker = _built(tell)
    good = asyncio.run(_machine_config())
    said = _said(checker, directory / "talos.yaml", good)
    assert said == "valid for a worker", f"Talos {_VERSION} says of the template: {said}"
    for right, wrong in {"  nodeLabels:": "  nodeLabel:", "    endpoint: ": "    endpoint: nowhere#"}.items():
        assert right in good, f"the machine config has no {right.strip()}"
        said = _said(checker, directory / "wrong.yaml", good.replace(right, wrong))
        assert not said.startswith("valid"), (
            f"Talos {_VERSION} takes {wrong.strip()!r} for right, so that it is no judge"
        )
    tell(f"the machine config of the template talos is valid to Talos {_VERSION}")


def _built(tell: Tell) -> Path:
    programs = {"talos": "."}
    recipe = Recipe(key=f"talos-{_VERSION}", module=_MODULE, version=_VERSION, programs=programs, source=_SOURCE)
    return build(recipe, tell)["talos"]


def _said(checker: Path, path: Path, config: str) -> str:
    path.write_text(config, "utf-8")
    done = subprocess.run([checker, path], capture_output=True, text=True, timeout=60.0, check=False)
    return (done.stdout + done.stderr).strip()


async def _machine_config() -> str:
    authority = new_authority(Validity.days(3)).certificate_pem
    values = {
        "token": "abcdef.0123456789abcdef",
        "machineToken": "fedcba.fedcba9876543210",
        "machineCA": base64.b64encode(authority).decode(),
        "clusterID": base64.b64encode(bytes(32)).decode(),
        "clusterSecret": base64.b64encode(bytes(range(32))).decode(),
        "install": {"disk": "/dev/vda"},
        "network": {"podSubnets": ["10.244.0.0/16"], "serviceSubnets": ["10.96.0.0/12"]},
    }
    plan = JoinPlan(
        template=ready_made("talos"),
        file="the template talos",
        server="https://10.0.0.1:6443",
        ca_cert=authority.decode(),
        values=values,
    )
    machine = NewMachine(
        name="m1",
        group="small",
        cloud="lab",
        provider_id="lab://m1",
        labels={"pool": "x"},
        taints=(Taint(key="dedicated", value="batch"),),
    )
    return await UserDataMaker({"small": plan}, cluster="prod").make(machine)
