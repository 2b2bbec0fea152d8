"""What runs the instances of an EC2 that has none: of each that it lists as running it makes one that joins a cluster.

It is run by scenarios, as ``python -m e2e.stand_in.ec2_host``.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import Any, Final

import boto3
import click

from e2e.stand_in.host import Source, Started, serve

__all__ = ["CAPACITY", "Ec2", "main"]

CAPACITY: Final = {"cpu": "2", "memory": "4Gi"}  # of a t3.medium


class Ec2(Source):
    """The instances of an endpoint."""

    def __init__(self, endpoint: str, region: str) -> None:
        keys = {"aws_access_key_id": "host", "aws_secret_access_key": "host"}  # nobody asks here
        self._client: Any = boto3.client("ec2", endpoint_url=endpoint, region_name=region, **keys)

    def running(self) -> set[str]:
        """By their ids."""
        return {instance["InstanceId"] for instance in self.instances("running")}

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """All in these states."""
        found = self._client.describe_instances(Filters=[{"Name": "instance-state-name", "Values": list(states)}])
        return [instance for reservation in found["Reservations"] for instance in reservation["Instances"]]

    def started(self, id_: str) -> Started:
        """With the user data that the instance would read from the metadata service."""
        found = [instance for instance in self.instances("running") if instance["InstanceId"] == id_]
        if not found:
            raise LookupError(id_)
        data = self._client.describe_instance_attribute(InstanceId=id_, Attribute="userData")["UserData"]["Value"]
        return Started(name=name_of(found[0]), capacity=CAPACITY, user_data=base64.b64decode(data).decode())


def name_of(instance: dict[str, Any]) -> str:
    """What its tag Name says."""
    return str(next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "Name"))


@click.command()
@click.option("--endpoint", required=True)
@click.option("--region", required=True)
@click.option("--home", type=click.Path(path_type=Path), required=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True)
def main(endpoint: str, region: str, home: Path, kubeconfig: Path) -> None:
    """Run the instances of an EC2."""
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(serve(Ec2(endpoint, region), home, kubeconfig))


if __name__ == "__main__":
    main()
