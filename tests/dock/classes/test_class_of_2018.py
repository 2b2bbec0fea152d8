"""Drivers of 2018 get each class in the form of 2018, wherever it is declared, and the secret that it names."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.config.sections.dock import DockClass
from cloudgraft.dock.classes.declared import SecretData, SecretId, Snapshot, class_of
from cloudgraft.dock.classes.files import ConfiguredReader, DirectoryReader
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.runner.classes import class_from_json
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.hub.hub_rig import Rig, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1

AWS = Key(kind="AWSMachineClass", api_version="machine.sapcloud.io/v1alpha1")
SPEC = {"ami": "ami-1", "region": "eu-west-1", "tags": {"kubernetes.io/cluster/prod": "1"}}
FILE = """
apiVersion: machine.sapcloud.io/v1alpha1
kind: AWSMachineClass
metadata: {name: aws, namespace: machines, labels: {a: b}}
spec: {ami: ami-1, region: eu-west-1, tags: {kubernetes.io/cluster/prod: "1"}, secretRef: {name: keys}}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: machines}
stringData: {userData: "#cloud-config"}
"""


def configured(directory: Path, *, has_secret: bool = True) -> Snapshot:
    """As `dock.classes` declares it."""
    secret = directory / "secret.yaml"
    secret.write_text('userData: "#cloud-config"')
    data: dict[str, Any] = {"kind": AWS.kind, "apiVersion": AWS.api_version, "providerSpec": SPEC}
    entry = DockClass.model_validate({**data, **({"secretFile": secret} if has_secret else {})})
    found = ConfiguredReader({"aws": entry}).read()
    assert found is not None
    return found


def from_files(directory: Path) -> Snapshot:
    """As a file of 2018 in `dock.classesDir` declares it."""
    (directory / "aws.yaml").write_text(FILE)
    found = DirectoryReader(directory).read()
    assert found is not None
    return found


def from_cluster(_directory: Path) -> Snapshot:
    """As an object of today's MachineClass declares it, whose provider is a part of its driver's kind."""
    content: Mapping[str, object] = {
        "apiVersion": AWS.api_version,
        "kind": "MachineClass",
        "metadata": {"name": "aws", "namespace": "machines"},
        "provider": "AWS",
        "providerSpec": SPEC,
        "secretRef": {"name": "boot", "namespace": "machines"},
        "credentialsSecretRef": {"name": "keys", "namespace": "machines"},
    }
    secrets: dict[SecretId, SecretData] = {
        ("machines", "boot"): {"userData": b"#cloud-config"},
        ("machines", "keys"): {"key": b"k"},
    }
    return Snapshot(classes=(class_of(content, secrets.get),))


def store(snapshot: Snapshot) -> MachineClasses:
    classes = MachineClasses(["here"])
    classes.publish("here", snapshot)
    return classes


async def fetched(rig: Rig, driver: RawV0, service: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The class and its secret, as the AWS driver of 2018 fetches them."""
    await driver.register(AWS)
    await until(lambda: rig.hub.info(AWS) is not None)
    meta = v0.MachineClassMeta(name="aws", revision=1)
    found = json.loads((await driver.unary(f"/{service}/GetMachineClass", meta, v0.MachineClass)).data)
    reference = found["spec"]["secretRef"]  # without a check, as that driver does
    wanted = v0.SecretMeta(secretName=reference["name"], nameSpace=reference["namespace"], revision=1)
    return found, json.loads((await driver.unary(f"/{service}/GetSecret", wanted, v0.Secret)).data)


@pytest.mark.parametrize("service", ["service.Servicegrpc", "infra.Infragrpc"])
@pytest.mark.parametrize("declared", [configured, from_files, from_cluster], ids=lambda one: one.__name__)
async def test_case_58_a_driver_of_2018_gets_the_form_of_2018(declared: Any, service: str, tmp_path: Path) -> None:
    async with (
        rigged(store=store(declared(tmp_path))) as rig,
        RawV0(rig, path=f"/{service}/Register") as driver,
    ):
        found, secret = await fetched(rig, driver, service)
        assert (found["apiVersion"], found["kind"], found["metadata"]["name"]) == (AWS.api_version, AWS.kind, "aws")
        assert {key: value for key, value in found["spec"].items() if key != "secretRef"} == SPEC
        namespace = "default" if declared is configured else "machines"
        assert found["metadata"]["namespace"] == found["spec"]["secretRef"]["namespace"] == namespace
        assert (secret["apiVersion"], secret["kind"]) == ("v1", "Secret")
        assert secret["metadata"]["namespace"] == namespace
        assert base64.b64decode(secret["data"]["userData"]) == b"#cloud-config"


async def test_case_58_a_class_without_a_secret_names_an_empty_one(tmp_path: Path) -> None:
    """The controller of 2018 took no class without a secretRef, and its drivers end at one."""
    async with rigged(store=store(configured(tmp_path, has_secret=False))) as rig, RawV0(rig) as driver:
        found, secret = await fetched(rig, driver, "service.Servicegrpc")
        assert found["spec"]["secretRef"] == {"name": "aws", "namespace": "default"}
        assert secret["data"] == {}
        ours = class_from_json(json.dumps(found), name="aws", key=AWS, revision=1)
        assert (ours.secret, ours.provider_spec) == ("", SPEC), "our own runner sees that there is none"


async def test_a_driver_of_today_gets_the_class_as_it_was_declared(tmp_path: Path) -> None:
    async with rigged(store=store(configured(tmp_path))) as rig, RawV1(rig) as driver:
        await driver.connect(AWS)
        got = await driver.unary(
            "/cloudgraft.dock.v1.Dock/GetMachineClass", v1.GetMachineClassRequest(name="aws"), v1.MachineClass
        )
        found = json.loads(got.json)
        assert (found["providerSpec"], found["secretRef"], "spec" in found) == (SPEC, {"name": "aws"}, False)


def test_our_runner_keeps_references_out_of_the_settings_of_an_old_class() -> None:
    old = {"metadata": {"name": "aws"}, "spec": {**SPEC, "secretRef": {"name": "keys", "namespace": "machines"}}}
    found = class_from_json(json.dumps(old), name="aws", key=AWS, revision=1)
    assert (found.provider_spec, found.secret, found.namespace) == (SPEC, "keys", "machines")
