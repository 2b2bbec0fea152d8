"""Scenario 18: into EC2, played by moto behind a proxy that keeps client tokens as EC2 does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from clouds.servers.aws_proxy import AwsProxy
from clouds.servers.moto_server import IMAGE, REGION, MotoServer
from e2e.processes import Program
from e2e.scenarios.into_a_cloud import RealCloud, scale_into
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage
from e2e.stand_in.ec2_host import CAPACITY, Ec2, name_of

__all__ = ["SCENARIO"]

_ROOT: Final = Path(__file__).resolve().parents[2]


def _run(stage: Stage) -> None:
    moto = MotoServer(stage.directory)
    stage.start_program(moto)
    proxy = AwsProxy(moto.port)
    stage.stack.callback(proxy.close)
    behind = f"http://127.0.0.1:{moto.port}"
    ec2 = Ec2(behind, REGION)

    def host(home: Path, kubeconfig: Path) -> Program:
        options: list[str | Path] = ["--endpoint", behind, "--region", REGION, "--home", home]
        command = [sys.executable, "-m", "e2e.stand_in.ec2_host", *options, "--kubeconfig", kubeconfig]
        return Program("the instances", command, stage.directory / "ec2.log", environment={"PYTHONPATH": str(_ROOT)})

    key, secret = proxy.new_key()
    for name, value in (("key-id", key), ("secret", secret)):
        (stage.directory / name).write_text(value, "utf-8")
    section = {
        "driver": "ec2",
        "region": REGION,
        "endpointUrl": proxy.url,
        "accessKeyIdFile": "key-id",
        "secretAccessKeyFile": "secret",
        "shapes": ["t3.medium"],
        "listDelay": "0s",
    }
    cloud = RealCloud(
        section=section,
        machine={"shape": "t3.medium", "image": IMAGE},
        capacity=CAPACITY,
        host=host,
        alive=lambda: [name_of(one) for one in ec2.instances("pending", "running", "shutting-down", "stopped")],
    )
    scale_into(stage, cloud)


SCENARIO: Final = Scenario(
    number=18, seconds=80, title="into EC2, played by moto: up, killed in between, down", run=_run
)
