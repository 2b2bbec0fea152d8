"""Runs one connection that speaks the protocol of 2018: the hub speaks first, and no result is sent twice."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, cast

from cloudgraft.dock.protocol.codes import Code, Verb, decode, encode, error_of
from cloudgraft.dock.protocol.messages import ClassRef, MachineClass, Operation, Result, Secret
from cloudgraft.dock.protocol.v0 import REGISTER_CALL, SERVICES
from cloudgraft.dock.runner.adapter import status_of
from cloudgraft.dock.runner.classes import class_from_json
from cloudgraft.dock.runner.connection import Dialled, End
from cloudgraft.dock.runner.options import Speech
from cloudgraft.dock.runner.state import RunnerState, Session
from cloudgraft.dock.runner.work import Job
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from cloudgraft.sdk.errors import InternalError, PreconditionError
from cloudgraft.wire.driver import expect_all
from cloudgraft.wire.pb import dock_v0_pb2 as pb

# -- Lookup by providerID ----------------------------------------------------------------------------------------------
# v0 has only that id; a driver of the sdk has two.


_REMEMBERED: Final = 10_000  # machines


def id_of(machine: Machine) -> str:
    """The id in v0: the providerID if there is one."""
    return machine.provider_id or machine.machine_id


class ByProviderId(Driver):
    """Wraps a driver so that its delete takes a machine by its providerID."""

    def __init__(self, inner: Driver) -> None:
        self._inner = inner
        self._known: OrderedDict[str, Machine] = OrderedDict()
        self.traits = inner.traits

    async def create(self, spec: MachineSpec) -> Machine:
        """See :meth:`Driver.create`."""
        machine = await self._inner.create(spec)
        self._remember(machine)
        return machine

    async def list(self) -> Sequence[Machine]:
        """See :meth:`Driver.list`."""
        answer = await self._inner.list()
        expect_all(answer)
        machines = [*answer]  # the answer may be an iterator
        for machine in machines:
            self._remember(machine)
        return machines

    async def delete(self, machine: Machine) -> None:
        """``machine.machine_id`` is the providerID here. One that a list lacks is gone only if the traits say so."""
        wanted = machine.machine_id
        if wanted not in self._known:
            await self.list()
        found = self._known.get(wanted)
        if found is not None:
            await self._inner.delete(found)
            self._known.pop(wanted, None)
        elif not self.traits.complete_list or self.traits.list_delay:
            raise PreconditionError(
                f"{wanted!r} is not in the cloud's list, and in this cloud that does not prove that it is gone"
            )

    async def start(self) -> None:
        """See :meth:`Driver.start`."""
        await self._inner.start()
        self.traits = self._inner.traits  # start() may have learned more about the cloud

    async def close(self) -> None:
        """See :meth:`Driver.close`."""
        await self._inner.close()

    def _remember(self, machine: Machine) -> None:
        self._known[id_of(machine)] = machine
        self._known[machine.machine_id] = machine
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


# -- The session -------------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.dock")

_SERVICES: Final = dict(zip((Speech.V0, Speech.V0_INFRA), SERVICES, strict=True))
_TIMEOUT: Final = timedelta(minutes=5)  # v0 sends none
_WRITE_TIMEOUT: Final = 60.0  # seconds that a write may block
_LARGEST: Final = 16 * 1024 * 1024  # bytes; a larger message would end every connection


class SessionV0(Session):
    """From the hub's ``register`` to the end of the stream. A lost connection loses its results."""

    is_versioned = False

    def __init__(self, dialled: Dialled, state: RunnerState) -> None:
        self._service = _SERVICES[state.options.settings.speech]
        super().__init__(dialled, state, f"/{self._service}/{REGISTER_CALL}")
        self._hub_id = secrets.token_hex(8)  # operation numbers of v0 start again with each connection

    async def run(self) -> End:
        """See :class:`Session`."""
        try:
            async with asyncio.timeout(self._state.options.settings.handshake):
                is_asked = await self._register()
        except TimeoutError:
            return End(reason="the hub did not ask this driver to register in time")
        if not is_asked:
            return End(reason="the hub ended the connection before it asked this driver to register")
        self._state.attach(self)
        self._state.welcomed("")
        return await self._serve(_WRITE_TIMEOUT)

    def announce(self, reason: str) -> None:
        """Does nothing: v0 lacks such a message, and ``unregister`` ends everything at once."""

    async def leave(self) -> None:
        """Sends ``unregister`` before it closes."""
        self._outbox.put(pb.DriverSide(operationType="unregister"))
        await super().leave()

    async def machine_class(self, name: str) -> MachineClass:
        """See :class:`Source`. The name is the hub's own, and may be a path."""
        request = pb.MachineClassMeta(name=name, revision=1)
        found = await self._dialled.ask(f"/{self._service}/GetMachineClass", request, pb.MachineClass)
        _raise_text(found.error)
        return class_from_json(found.data, name=name, key=self._state.options.key, revision=1)

    async def secret(self, machine_class: MachineClass) -> Secret | None:
        """See :class:`Source`."""
        name, namespace = machine_class.secret, machine_class.namespace
        if not name:
            return None
        request = pb.SecretMeta(secretName=name, nameSpace=namespace, revision=1)
        found = await self._dialled.ask(f"/{self._service}/GetSecret", request, pb.Secret)
        _raise_text(found.error)
        return Secret(name=name, namespace=namespace, revision=1, data=_secret_data(found.data))

    async def _register(self) -> bool:
        data = await self._stream.read()
        if not isinstance(data, bytes):  # the end of the stream
            return False
        asked = pb.MCMside.FromString(data)
        group, _, version = self._state.options.api_version.partition("/")
        answer = pb.DriverSide(operationID=asked.operationID, operationType=asked.operationType or "register")
        answer.registerResp.name = self._state.options.settings.name or self._state.docked.name
        answer.registerResp.kind = self._state.options.kind
        answer.registerResp.group = group
        answer.registerResp.version = version
        await self._stream.write(answer.SerializeToString())
        return True

    def _take(self, data: bytes) -> None:
        message = pb.MCMside.FromString(data)
        operation = _operation(message)
        if operation is None:  # as in 2018: an answer without a content
            log.warning("the hub asks for %r, which v0 does not know", message.operationType)
            self._outbox.put(pb.DriverSide(operationID=message.operationID, operationType=message.operationType))
            return
        wanted = message.operationparams.machineID

        def done(job: Job, result: Result) -> None:
            if self._state.current is self:
                self._outbox.put(_fitting(job, result, wanted))

        number = message.operationID
        job = Job(id=number, hub_id=self._hub_id, operation=operation, on_done=done, is_acknowledged=False)
        self._state.operations.begin(job)


def _operation(message: pb.MCMside) -> Operation | None:
    params = message.operationparams
    meta = params.machineClassMetaData
    ref = ClassRef(name=meta.name, revision=meta.revision)
    match message.operationType:
        case "create":
            spec = MachineSpec(name=params.machineName, group="")
            return Operation(verb=Verb.CREATE, class_ref=ref, timeout=_TIMEOUT, spec=spec)
        case "delete":
            machine = Machine(name=params.machineName, machine_id=params.machineID, provider_id=params.machineID)
            return Operation(verb=Verb.DELETE, class_ref=ref, timeout=_TIMEOUT, machine=machine)
        case "list":
            return Operation(verb=Verb.LIST, class_ref=ref, timeout=_TIMEOUT)
    return None


def _fitting(job: Job, result: Result, wanted: str) -> pb.DriverSide:
    """Encodes the answer; sends an error for one that cannot be encoded, and for a list that is too large.

    v0 does not transmit the hub's limit: this is the one of our hub.
    """
    try:
        message = _answer(job, result, wanted)
        if (size := message.ByteSize()) > _LARGEST:
            text = f"the answer has {size} bytes, and {_LARGEST} are allowed; it cannot be sent in part"
            raise InternalError(text)  # noqa: TRY301 - reported like any other error
    except Exception as error:  # noqa: BLE001 - an author's code may return anything
        return _answer(job, Result(status=status_of(error)), wanted)
    return message


def _answer(job: Job, result: Result, wanted: str) -> pb.DriverSide:
    """``wanted`` is the one machine that a list was asked for; empty: all."""
    status, answer, verb = result.status, result.answer, job.operation.verb
    message = pb.DriverSide(operationID=job.id, operationType=verb.value)
    error = "" if status.code is Code.OK else encode(status.code, status.message)
    if verb is Verb.CREATE:
        message.createresponse.error = error
        if isinstance(answer, Machine):
            message.createresponse.providerID = id_of(answer)
            message.createresponse.nodename = answer.addresses[0] if answer.addresses else answer.name
    elif verb is Verb.DELETE:
        message.deleteresponse.error = "" if status.code is Code.NOT_FOUND else error
    else:
        message.listresponse.error = error
        machines = cast("Sequence[Machine]", answer if answer is not None else ())
        for machine in machines:
            if wanted in {"", id_of(machine), machine.machine_id}:
                message.listresponse.list.add(machineID=id_of(machine), machineName=machine.name)
    return message


def _raise_text(text: str) -> None:
    if text:
        code, message = decode(text)
        raise error_of(code, message, Verb.LIST, None) or InternalError(message)


def _secret_data(text: str) -> dict[str, bytes]:
    """Decodes the values of a whole Kubernetes Secret, which are in base64."""
    try:
        values = json.loads(text).get("data") or {}
        return {str(name): base64.b64decode(value, validate=True) for name, value in values.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise InternalError("what the hub sent for the secret is not a Secret of Kubernetes") from None
