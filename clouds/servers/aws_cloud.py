"""moto with the proxy before it, and an account in it: what a driver is pointed at."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import boto3

from clouds.servers.aws_proxy import AwsProxy
from clouds.servers.moto_server import REGION, MotoServer

__all__ = ["AwsCloud", "tags_of"]

_LIVING: Final = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]


class AwsCloud:
    """Use it as a context. All its files are below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.moto = MotoServer(directory)
        self._proxy: AwsProxy | None = None

    def __enter__(self) -> Self:
        self.moto.start()
        self._proxy = AwsProxy(self.moto.port)
        return self

    def __exit__(self, *_: object) -> None:
        if self._proxy is not None:
            self._proxy.close()
        self.moto.stop()

    @property
    def proxy(self) -> AwsProxy:
        """What drivers talk to, and what is told what goes wrong."""
        if self._proxy is None:
            raise RuntimeError("it is not started")
        return self._proxy

    def account(self, name: str = "own") -> dict[str, Any]:
        """The options for a caller with a key of its own, as they are in a configuration file."""
        return self.options(name, *self.proxy.new_key())

    def options(self, name: str, key: str, secret: str) -> dict[str, Any]:
        """The same for a given key."""
        files = {"accessKeyIdFile": key, "secretAccessKeyFile": secret}
        options: dict[str, Any] = {"region": REGION, "endpointUrl": self.proxy.url}
        for option, content in files.items():
            file = self.directory / f"{name}.{option}"
            file.write_text(f"{content}\n", "utf-8")
            options[option] = str(file)
        return options

    # -- without a driver ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def client(self) -> Any:
        """Speaks to moto itself, past the proxy."""
        return self._client("ec2")

    @functools.cached_property
    def scaling(self) -> Any:
        """The same for Auto Scaling."""
        return self._client("autoscaling")

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=f"http://127.0.0.1:{self.moto.port}",
            aws_access_key_id="judge",
            aws_secret_access_key="judge",
        )

    def instances(self, name: str = "") -> list[Mapping[str, Any]]:
        """All that are not terminated, or those of them with this name."""
        named = [{"Name": "tag:Name", "Values": [name]}] if name else []
        pages = self.client.get_paginator("describe_instances").paginate(Filters=[*_LIVING, *named])
        return [one for page in pages for group in page["Reservations"] for one in group["Instances"]]

    def alive(self) -> list[str]:
        """Their names."""
        return sorted(tags_of(one).get("Name", one["InstanceId"]) for one in self.instances())

    def terminate(self, *ids: str) -> None:
        """By hand."""
        if ids:
            self.client.terminate_instances(InstanceIds=list(ids))

    def subnets(self) -> dict[str, str]:
        """A subnet for each zone."""
        found = self.client.describe_subnets()["Subnets"]
        return {str(one["AvailabilityZone"]): str(one["SubnetId"]) for one in found}


def tags_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """The tags of whatever EC2 describes."""
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", ())}
