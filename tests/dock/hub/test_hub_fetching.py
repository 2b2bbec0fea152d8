"""Classes and secrets for drivers: what is theirs, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from cloudgraft.dock.classes.declared import Snapshot, class_of
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.protocol.messages import Key, Secret
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, OTHER, Rig, listing, rigged
from tests.dock.hub.raw_drivers import RawV0, RawV1

CLASS_V0 = "/service.Servicegrpc/GetMachineClass"
SECRET_V0 = "/service.Servicegrpc/GetSecret"
CLASS_V1 = "/cloudgraft.dock.v1.Dock/GetMachineClass"
SECRET_V1 = "/cloudgraft.dock.v1.Dock/GetSecret"
PASSWORD = b"correct horse battery"
WITH_SECRET = {
    "kind": ACME.kind,
    "apiVersion": ACME.api_version,
    "metadata": {"name": "small", "namespace": "ns"},
    "providerSpec": {},
    "secretRef": {"name": "keys"},
}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with rigged() as rig:
        rig.classes.add("small", ACME, secret="credentials", json='{"kind": "AcmeMachineClass"}')
        rig.classes.add("bare", ACME)
        rig.classes.add("theirs", OTHER, secret="other")
        for name in ("credentials", "other", "unused"):
            rig.classes.secrets[name] = Secret(name=name, revision=5, namespace="ns", data={"password": PASSWORD})
        yield rig


async def code_of(driver: RawV0 | RawV1, path: str, request: object, response: object) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await driver.unary(path, request, response)  # type: ignore[arg-type]  # any message
    assert PASSWORD.decode() not in str(caught.value)
    return caught.value.code()


async def asked(rig: Rig, driver: RawV0) -> None:
    """Has it be asked for a list of the class "small"."""
    await driver.register()
    await until(lambda: rig.hub.info(ACME) is not None)
    task = asyncio.create_task(rig.hub.call(ACME, listing()))
    await driver.listed((await driver.receive()).operationID)
    await task


async def test_v1_gets_the_class_and_secret_of_its_kind(rig: Rig) -> None:
    async with RawV1(rig) as driver:
        await driver.connect()
        got = await driver.unary(CLASS_V1, v1.GetMachineClassRequest(name="small"), v1.MachineClass)
        assert (got.name, got.revision, got.json) == ("small", 3, '{"kind": "AcmeMachineClass"}')
        secret = await driver.unary(SECRET_V1, v1.GetSecretRequest(machine_class="small"), v1.Secret)
        assert (secret.revision, dict(secret.data)) == (5, {"password": PASSWORD})
        nothing = await code_of(driver, SECRET_V1, v1.GetSecretRequest(machine_class="bare"), v1.Secret)
        assert nothing is grpc.StatusCode.NOT_FOUND


async def test_v0_gets_the_class_and_secret_that_it_works_with_as_kubernetes_writes_them(rig: Rig) -> None:
    async with RawV0(rig) as driver:
        await asked(rig, driver)
        got = await driver.unary(CLASS_V0, v0.MachineClassMeta(name="small", revision=1), v0.MachineClass)
        form = {
            "apiVersion": "machine.example/v1",
            "kind": "AcmeMachineClass",
            "metadata": {"name": "small", "namespace": "default"},
            "spec": {"secretRef": {"name": "credentials", "namespace": "default"}},
        }
        assert (json.loads(got.data), got.error) == (form, "")
        wanted = v0.SecretMeta(secretName="credentials", nameSpace="ns", revision=1)
        secret = json.loads((await driver.unary(SECRET_V0, wanted, v0.Secret)).data)
        assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "credentials")
        assert base64.b64decode(secret["data"]["password"]) == PASSWORD
        elsewhere = v0.SecretMeta(secretName="credentials", nameSpace="kube-system")
        assert await code_of(driver, SECRET_V0, elsewhere, v0.Secret) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("name", ["theirs", "none", "", "../small", "/apis/x/small", "small\x00", "*"])
async def test_case_36_and_37_what_is_not_the_callers_looks_like_what_is_not_there(rig: Rig, name: str) -> None:
    async with RawV1(rig) as driver, RawV1(rig, identity="else") as other, RawV0(rig, identity="old") as old:
        await driver.connect()
        await other.connect(OTHER)
        for request, path, response in (
            (v1.GetMachineClassRequest(name=name), CLASS_V1, v1.MachineClass),
            (v1.GetSecretRequest(machine_class=name), SECRET_V1, v1.Secret),
        ):
            assert await code_of(driver, path, request, response) is grpc.StatusCode.NOT_FOUND
        # Not connected, it has no kind: then there is nothing.
        request0 = v0.MachineClassMeta(name="small")
        assert await code_of(old, CLASS_V0, request0, v0.MachineClass) is grpc.StatusCode.NOT_FOUND


async def test_case_36_a_v0_driver_gets_no_secret_but_that_of_a_class_it_works_with(rig: Rig) -> None:
    async with RawV0(rig) as driver, RawV1(rig, identity="else") as other:
        await asked(rig, driver)
        await other.connect(OTHER)
        for name in ("other", "unused", "", "../credentials"):
            request = v0.SecretMeta(secretName=name, nameSpace="ns")
            assert await code_of(driver, SECRET_V0, request, v0.Secret) is grpc.StatusCode.NOT_FOUND


async def test_of_two_kinds_with_one_name_each_connection_gets_its_own(rig: Rig) -> None:
    """A request does not name the kind; the connection that it comes by tells it."""
    second = Key(kind="SecondMachineClass", api_version="machine.example/v1")
    rig.classes.add("small", second, json='{"kind": "SecondMachineClass"}')
    async with RawV1(rig) as one, RawV1(rig) as two:
        await one.connect(ACME)
        await two.connect(second)
        for driver, key in ((one, ACME), (two, second), (one, ACME)):
            got = await driver.unary(CLASS_V1, v1.GetMachineClassRequest(name="small"), v1.MachineClass)
            assert json.loads(got.json) == {"kind": key.kind}


async def test_strangers_and_requests_that_are_none_are_refused(rig: Rig) -> None:
    rig.access.strangers.add("nobody")
    async with RawV1(rig, identity="nobody") as stranger, RawV1(rig) as driver:
        request = v1.GetMachineClassRequest(name="small")
        assert await code_of(stranger, CLASS_V1, request, v1.MachineClass) is grpc.StatusCode.UNAUTHENTICATED
        await driver.connect()
        call: Any = driver.channel.unary_unary(CLASS_V1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff\xff", metadata=driver.metadata, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_bug_in_the_store_of_classes_reaches_the_driver_as_an_id(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    async with RawV1(rig) as driver:
        await driver.connect()
        monkeypatch.setattr(type(rig.classes), "get", broken)
        with caplog.at_level(logging.CRITICAL, logger="cloudgraft.dock"):
            request = v1.GetMachineClassRequest(name="small")
            assert await code_of(driver, CLASS_V1, request, v1.MachineClass) is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("before", [0, 1980], ids=["whole", "cut"])
@pytest.mark.parametrize("kind", [RawV0, RawV1])
async def test_case_40_a_secret_is_redacted_in_sent_and_kept_errors(
    kind: type[RawV0 | RawV1], before: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Some clouds answer with what they were sent. The caller, the report and the log have none of it."""
    secret = {("ns", "keys"): {"password": b"quoted-by-its-cloud"}}
    store = MachineClasses(["file"])
    store.publish("file", Snapshot(classes=(class_of(WITH_SECRET, secret.get),)))  # which hides it
    text = f"{'x' * before} login with quoted-by-its-cloud failed"
    with caplog.at_level(logging.DEBUG):
        async with rigged(store=store) as rig, kind(rig) as driver:
            if isinstance(driver, RawV0):
                await driver.register()
                await until(lambda: rig.hub.info(ACME) is not None)
            else:
                await driver.connect()
            looking = asyncio.create_task(rig.hub.call(ACME, listing()))
            if isinstance(driver, RawV0):
                await driver.listed((await driver.receive()).operationID, error=text)
            else:
                number = (await driver.operation()).id
                status = v1.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=text)
                await driver.send(v1.DriverMessage(result=v1.Result(id=number, status=status)))
            with pytest.raises(CloudgraftError, match=r"login|xxx") as caught:
                await looking
            reported = rig.hub.drivers()[0].last_error
    assert reported.startswith("list: ")
    assert "quoted" not in f"{caught.value.message} {reported} {caplog.text}"


async def test_case_40_no_secret_is_in_a_log_or_a_report(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with RawV1(rig) as driver:
            await driver.connect()
            await driver.unary(SECRET_V1, v1.GetSecretRequest(machine_class="small"), v1.Secret)
            report = repr(rig.hub.drivers())
        await until(lambda: rig.hub.info(ACME) is None)
    assert PASSWORD.decode() not in caplog.text
    assert PASSWORD.decode() not in report
