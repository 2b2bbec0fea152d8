"""Classes and secrets of the real store as drivers of both protocols get them, over the real hub and a real socket."""

from __future__ import annotations

import base64
import json

import pytest

from cloudgraft.dock.classes.declared import Snapshot, class_of
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1

SECRETS = {("ns", "pool"): {"userData": b"boot", "token": b"none"}, ("ns", "cloud"): {"token": b"correct-horse"}}
TOGETHER = {"userData": b"boot", "token": b"correct-horse"}


def store() -> MachineClasses:
    """A class that names two secrets."""
    content = {
        "apiVersion": ACME.api_version,
        "kind": ACME.kind,
        "metadata": {"name": "small", "namespace": "ns"},
        "providerSpec": {},
        "secretRef": {"name": "pool"},
        "credentialsSecretRef": {"name": "cloud"},
    }
    classes = MachineClasses(["here"])
    classes.publish("here", Snapshot(classes=(class_of(content, SECRETS.get),)))
    return classes


@pytest.mark.parametrize("name", ["pool", "cloud"])
async def test_of_two_secrets_of_a_class_each_name_gives_a_driver_of_2018_the_values_of_both(name: str) -> None:
    """It knows `secretRef` alone, and has always found all that it needs there. The credentials are laid over it."""
    async with rigged() as rig, RawV0(rig) as driver:
        found = store().get("small", ACME)
        rig.classes.given["small", ACME] = found
        secret = store().secret(found)
        assert secret is not None
        rig.classes.secrets["cloud"] = secret
        await driver.register()
        await until(lambda: rig.hub.info(ACME) is not None)
        meta = v0.MachineClassMeta(name="small", revision=1)
        written = json.loads((await driver.unary("/service.Servicegrpc/GetMachineClass", meta, v0.MachineClass)).data)
        assert written["secretRef"] == {"name": "pool"}
        wanted = v0.SecretMeta(secretName=name, nameSpace="ns", revision=1)
        got = json.loads((await driver.unary("/service.Servicegrpc/GetSecret", wanted, v0.Secret)).data)
        assert got["metadata"]["name"] == name
        assert {key: base64.b64decode(value) for key, value in got["data"].items()} == TOGETHER


async def test_a_driver_of_today_asks_by_the_class_and_gets_the_values_of_both() -> None:
    async with rigged() as rig, RawV1(rig) as driver:
        found = store().get("small", ACME)
        rig.classes.given["small", ACME] = found
        secret = store().secret(found)
        assert secret is not None
        rig.classes.secrets["cloud"] = secret
        await driver.connect()
        request = v1.GetSecretRequest(machine_class="small")
        got = await driver.unary("/cloudgraft.dock.v1.Dock/GetSecret", request, v1.Secret)
        assert dict(got.data) == TOGETHER
