"""The files of deploy/, read, for the tests of that directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cloudgraft.client import CloudConfig

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"


@dataclass(frozen=True)
class Manifests:
    """The objects of one file."""

    objects: list[dict[str, Any]]

    @classmethod
    def of(cls, name: str) -> Manifests:
        return cls([found for found in yaml.safe_load_all((DEPLOY / f"{name}.yaml").read_text()) if found])

    def one(self, kind: str) -> dict[str, Any]:
        (found,) = [found for found in self.objects if found["kind"] == kind]
        return found

    @property
    def pod(self) -> dict[str, Any]:
        template: dict[str, Any] = self.one("Deployment")["spec"]["template"]
        return template

    @property
    def container(self) -> dict[str, Any]:
        container: dict[str, Any]
        (container,) = self.pod["spec"]["containers"]
        return container

    @property
    def config(self) -> dict[str, Any]:
        """cloudgraft.yaml."""
        config: dict[str, Any] = yaml.safe_load(self.one("ConfigMap")["data"]["cloudgraft.yaml"])
        return config

    def mount(self, path: str) -> dict[str, Any]:
        """The mount in which a file of the container lies."""
        mount: dict[str, Any]
        (mount,) = [each for each in self.container["volumeMounts"] if each["mountPath"] == str(Path(path).parent)]
        return mount

    def mounted(self, path: str) -> dict[str, Any]:
        """The volume of that mount."""
        name = self.mount(path)["name"]
        volume: dict[str, Any]
        (volume,) = [volume for volume in self.pod["spec"]["volumes"] if volume["name"] == name]
        return volume


CLOUDGRAFT = Manifests.of("cloudgraft")
AUTOSCALER = Manifests.of("cluster-autoscaler")
REPLICAS = Manifests.of("cloudgraft-replicas")
CLOUD_CONFIG = CloudConfig.parse(AUTOSCALER.one("ConfigMap")["data"]["cloud-config.yaml"])
