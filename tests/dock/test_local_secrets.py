"""Secrets of a dock without tokens and TLS: a program on this host has no identity, so it gets none unless allowed.

Over a whole dock of a configuration, as `cloudgraft serve` builds it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.config import ConfigError, parse
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, OTHER, create, listing
from tests.dock.hub.raw_drivers import RawV0, RawV1

PASSWORD = "correct horse battery"
TOKEN = "a-token-of-the-driver-0123"
CLASS = v0.MachineClassMeta(name="small", revision=1)
SECRET = v0.SecretMeta(secretName="keys", nameSpace="default", revision=1)
CLASS_V0, SECRET_V0 = "/service.Servicegrpc/GetMachineClass", "/service.Servicegrpc/GetSecret"
CLASS_V1, SECRET_V1 = "/cloudgraft.dock.v1.Dock/GetMachineClass", "/cloudgraft.dock.v1.Dock/GetSecret"
ASKED = (
    (CLASS_V0, CLASS, v0.MachineClass),
    (SECRET_V0, SECRET, v0.Secret),
    (CLASS_V1, v1.GetMachineClassRequest(name="small"), v1.MachineClass),
    (SECRET_V1, v1.GetSecretRequest(machine_class="small"), v1.Secret),
)


def config_of(directory: Path, more: str) -> Any:
    """The classes are files, as the configuration itself refuses a secret that no driver can get."""
    classes = directory / "classes"
    classes.mkdir(exist_ok=True)
    machine_class = {
        "kind": ACME.kind,
        "apiVersion": ACME.api_version,
        "metadata": {"name": "small", "namespace": "default"},
        "providerSpec": {"size": 1},
        "secretRef": {"name": "keys"},
    }
    secret = {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"password": PASSWORD},
    }
    outspoken = {**machine_class, "metadata": {"name": "outspoken"}, "providerSpec": {"password": PASSWORD}}
    del outspoken["secretRef"]
    for name, content in (("class", machine_class), ("secret", secret), ("outspoken", outspoken)):
        (classes / f"{name}.json").write_text(json.dumps(content))
        (classes / f"{name}.json").chmod(0o600)
    return parse(f"cluster: c\ndock: {{listen: '127.0.0.1:0', classesDir: {classes}{more}}}", directory)


@asynccontextmanager
async def docked(directory: Path, more: str = "") -> AsyncIterator[DockLink]:
    config = config_of(directory, more)
    link = DockLink(config, config.dock)
    async with link.running():
        yield link


async def registered(link: DockLink, driver: RawV0) -> None:
    """Registers it, and lets it work with the class."""
    await driver.register()
    await until(lambda: link.hub.info(ACME) is not None)
    task = asyncio.create_task(link.hub.call(ACME, listing()))
    await driver.listed((await driver.receive()).operationID)
    await task


async def answer(driver: RawV0 | RawV1, path: str, request: Message, response: type[Message]) -> str:
    """The name of the refusal, or what was answered."""
    try:
        return str(await driver.unary(path, request, response))
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"


@pytest.mark.parametrize("option", ["", ", allowLocalSecrets: true"])
async def test_an_unregistered_program_gets_nothing_of_a_connected_driver(tmp_path: Path, option: str) -> None:
    async with docked(tmp_path, option) as link, RawV0(link.listener.address) as driver:
        await registered(link, driver)
        async with RawV0(link.listener.address) as thief:
            for path, request, response in ASKED:
                assert (await answer(thief, path, request, response)).startswith("NOT_FOUND"), path


@pytest.mark.parametrize("option", ["", ", allowLocalSecrets: true"])
async def test_a_driver_of_another_kind_gets_nothing_of_a_connected_driver(tmp_path: Path, option: str) -> None:
    async with docked(tmp_path, option) as link, RawV0(link.listener.address) as driver:
        await registered(link, driver)
        async with RawV0(link.listener.address) as thief, RawV1(link.listener.address) as second:
            await thief.register(OTHER)
            await until(lambda: link.hub.info(OTHER) is not None)
            await second.connect(Key(kind="Third", api_version="v1"))
            for path, request, response in ASKED:
                assert (await answer(thief, path, request, response)).startswith("NOT_FOUND"), path
                assert (await answer(second, path, request, response)).startswith("NOT_FOUND"), path


async def test_without_identity_a_driver_gets_its_class_and_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with docked(tmp_path) as link, RawV0(link.listener.address) as driver:
        await registered(link, driver)
        got = await driver.unary(CLASS_V0, CLASS, v0.MachineClass)
        assert json.loads(got.data)["metadata"]["name"] == "small"
        for _ in range(3):
            refusal = await answer(driver, SECRET_V0, SECRET, v0.Secret)
            assert refusal.startswith("PERMISSION_DENIED: ")
            assert "tokenFile" in refusal
            assert "dock.allowLocalSecrets: true" in refusal
        outspoken = await answer(driver, CLASS_V0, v0.MachineClassMeta(name="outspoken"), v0.MachineClass)
        assert outspoken.startswith("PERMISSION_DENIED: ")
    warned = [one for one in caplog.records if "has not proved who it is" in one.getMessage()]
    assert [one.levelno for one in warned] == [logging.WARNING] * 2  # one a minute for each secret
    assert PASSWORD not in caplog.text


async def test_what_is_allowed_explicitly_is_given_on_the_drivers_own_connection(tmp_path: Path) -> None:
    async with docked(tmp_path, ", allowLocalSecrets: true") as link, RawV0(link.listener.address) as driver:
        await registered(link, driver)
        got = json.loads((await driver.unary(SECRET_V0, SECRET, v0.Secret)).data)
        assert got["metadata"]["name"] == "keys"
        assert PASSWORD in await answer(driver, SECRET_V1, v1.GetSecretRequest(machine_class="small"), v1.Secret)
        got = await driver.unary(CLASS_V0, v0.MachineClassMeta(name="outspoken"), v0.MachineClass)
        assert json.loads(got.data)["providerSpec"] == {"password": PASSWORD}


async def test_a_token_is_an_identity_on_any_connection(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    rule = f"{{name: a, kind: {ACME.kind}, apiVersion: {ACME.api_version}, tokenFile: {token}}}"
    async with docked(tmp_path, f", drivers: [{rule}]") as link:
        channel = grpc.aio.insecure_channel(link.listener.address)
        async with channel:
            metadata = (("authorization", f"Bearer {TOKEN}"),)
            stream: Any = channel.stream_stream(RawV1.path)(metadata=metadata)
            said = v1.Hello(protocol=1, kind=ACME.kind, api_version=ACME.api_version, instance_id="i")
            await stream.write(v1.DriverMessage(hello=said).SerializeToString())
            await stream.read()
            call: Any = channel.unary_unary(SECRET_V1)
            data = await call(v1.GetSecretRequest(machine_class="small").SerializeToString(), metadata=metadata)
            assert v1.Secret.FromString(data).data["password"] == PASSWORD.encode()


async def test_a_reload_that_forbids_local_secrets_holds_for_connected_drivers(tmp_path: Path) -> None:
    async with docked(tmp_path, ", allowLocalSecrets: true") as link, RawV0(link.listener.address) as driver:
        await registered(link, driver)
        assert PASSWORD in await answer(driver, SECRET_V1, v1.GetSecretRequest(machine_class="small"), v1.Secret)
        link.replace(config_of(tmp_path, "").dock)
        assert (await answer(driver, SECRET_V0, SECRET, v0.Secret)).startswith("PERMISSION_DENIED")


async def test_user_data_is_sent_to_no_driver_without_identity(tmp_path: Path) -> None:
    """It holds the token that the machine joins the cluster with."""
    async with docked(tmp_path) as link, RawV1(link.listener.address) as driver:
        await driver.connect()
        with pytest.raises(PreconditionError, match=r"nothing was sent .*allowLocalSecrets") as caught:
            await link.hub.call(ACME, create(user_data="join with abcdef.0123456789abcdef"))
        assert "abcdef" not in caught.value.message
        task = asyncio.create_task(link.hub.call(ACME, create()))  # without it the driver works as ever
        await driver.created(await driver.operation())
        await task
    async with docked(tmp_path, ", allowLocalSecrets: true") as link, RawV1(link.listener.address) as driver:
        await driver.connect()
        task = asyncio.create_task(link.hub.call(ACME, create(user_data="join")))
        operation = await driver.operation()
        assert operation.create.user_data == "join"
        await driver.created(operation)
        await task


@pytest.mark.parametrize("key", ["secretFile: secret.yaml", "secretDir: .", "secretEnv: {a: ACME}"])
def test_a_configured_secret_that_no_driver_can_get_is_an_error_of_the_file(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret.yaml").write_text("{}")
    (tmp_path / "token").write_text(TOKEN)
    classes = f"classes: {{small: {{kind: A, apiVersion: v1, {key}}}}}"
    with pytest.raises(ConfigError, match=r"no driver can get this secret.*dock\.allowLocalSecrets: true"):
        parse(f"cluster: c\ndock: {{{classes}}}", tmp_path)
    driver = "drivers: [{name: a, kind: A, apiVersion: v1, tokenFile: token}]"
    for way in (driver, "allowLocalSecrets: true"):
        assert parse(f"cluster: c\ndock: {{{classes}, {way}}}", tmp_path).dock is not None
    with pytest.raises(ConfigError, match="does not go together with tls and tokens"):
        parse(f"cluster: c\ndock: {{{classes}, {driver}, allowLocalSecrets: true}}", tmp_path)
