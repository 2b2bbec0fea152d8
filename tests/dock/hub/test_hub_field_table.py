"""v0 from a client that knows nothing but the table of 2018's fields: its bytes are put together here, by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc.aio
import pytest

from cloudgraft.dock.protocol.messages import Key, Secret
from cloudgraft.sdk.driver import Machine
from tests.conditions import until
from tests.dock.hub.hub_rig import create, delete, listing, rigged

AWS = Key(kind="AWSMachineClass", api_version="machine.sapcloud.io/v1alpha1")
Fields = dict[int, list[Any]]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
    """One field: a number as a varint, the rest with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields(data: bytes) -> Fields:
    """All fields of a message by number."""
    found: Fields = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(data[at : at + value])
            at += value
        else:
            assert tag & 7 == 0, "2018 has no other wire types"
            found.setdefault(tag >> 3, []).append(value)
    return found


def text(message: Fields, number: int) -> str:
    return bytes(message.get(number, [b""])[0]).decode()


@pytest.mark.parametrize("service", ["service.Servicegrpc", "infra.Infragrpc"])
async def test_v0_is_spoken_with_a_client_made_from_the_table_of_fields(service: str) -> None:
    """Register, create, list, delete, GetMachineClass, GetSecret, unregister: the whole of 2018."""
    async with rigged() as rig, grpc.aio.insecure_channel(rig.address) as channel:
        rig.classes.add("small", AWS, secret="keys", spec={"ami": "ami-1"})
        rig.classes.secrets["keys"] = Secret(name="keys", revision=5, namespace="default", data={"token": b"hush"})
        stream: Any = channel.stream_stream(f"/{service}/Register")()
        # MCMside {1: operationID, 2: operationType}: the hub speaks first.
        assert await stream.read() == b"\x08\x01\x12\x08register"
        # DriverSide {1, 2, 3: registerationResp {1: name, 2: group, 3: kind, 4: version}}.
        said = field(1, "externalDriver") + field(2, "machine.sapcloud.io") + field(3, AWS.kind) + field(4, "v1alpha1")
        await stream.write(field(1, 1) + field(2, "register") + field(3, said))
        await until(lambda: rig.hub.info(AWS) is not None)

        making = asyncio.create_task(rig.hub.call(AWS, create("vm-1")))
        message = fields(await stream.read())
        params = fields(message[3][0])  # 1: machineClassMetaData {1: name, 2: revision}, 2: credentials, 3: id, 4: name
        meta = fields(params[1][0])
        assert (message[1], text(message, 2)) == ([1], "create")
        assert (text(meta, 1), meta[2], 2 in params, 3 in params, text(params, 4)) == (
            "small",
            [3],
            False,
            False,
            "vm-1",
        )
        get: Any = channel.unary_unary(f"/{service}/GetMachineClass")
        spec = json.loads(text(fields(await get(params[1][0], timeout=20)), 1))["spec"]
        assert spec == {"ami": "ami-1", "secretRef": {"name": "keys", "namespace": "default"}}
        # SecretMeta {1: secretName, 2: nameSpace, 3: revision}, Secret {1: data, 2: error}.
        get_secret: Any = channel.unary_unary(f"/{service}/GetSecret")
        found = fields(await get_secret(field(1, "keys") + field(2, "default") + field(3, 1), timeout=20))
        assert (json.loads(text(found, 1))["data"], text(found, 2)) == ({"token": "aHVzaA=="}, "")
        # createResp {1: providerID, 2: nodename, 3: error}.
        created = field(1, "aws:///eu-west-1/i-1") + field(2, "ip-10-0-0-1")
        await stream.write(field(1, 1) + field(2, "create") + field(4, created))
        made = await making
        assert isinstance(made, Machine)
        assert (made.name, made.provider_id, made.addresses) == ("vm-1", "aws:///eu-west-1/i-1", ("ip-10-0-0-1",))

        looking = asyncio.create_task(rig.hub.call(AWS, listing()))
        message = fields(await stream.read())
        assert (message[1], text(message, 2), 3 in fields(message[3][0])) == ([2], "list", False)
        # listResp {1: repeated machine {1: machineID, 2: machineName}, 2: error}.
        machine = field(1, "aws:///eu-west-1/i-1") + field(2, "vm-1")
        await stream.write(field(1, 2) + field(2, "list") + field(6, field(1, machine)))
        machines = await looking
        assert isinstance(machines, list)
        assert [each.name for each in machines] == ["vm-1"]

        removing = asyncio.create_task(rig.hub.call(AWS, delete("aws:///eu-west-1/i-1")))
        message = fields(await stream.read())
        assert (message[1], text(message, 2)) == ([3], "delete")
        assert text(fields(message[3][0]), 3) == "aws:///eu-west-1/i-1"
        # deleteResp {1: error}: empty is success.
        await stream.write(field(1, 3) + field(2, "delete") + field(5, b""))
        assert await removing is None

        await stream.write(field(2, "unregister"))
        assert await stream.read() is grpc.aio.EOF
        assert rig.hub.info(AWS) is None
