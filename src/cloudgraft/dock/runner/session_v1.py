"""Runs one connection that speaks v1: hello, heartbeats both ways, operations, and results kept until acknowledged."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration

from cloudgraft.dock.protocol.codes import Code, Verb, code_from
from cloudgraft.dock.protocol.messages import MachineClass, Operation, Result, Secret
from cloudgraft.dock.protocol.v1 import (
    CONNECT,
    PROTOCOL_NUMBER,
    SERVICE,
    duration_from_pb,
    operation_from_pb,
    result_to_pb,
)
from cloudgraft.dock.runner.adapter import status_of
from cloudgraft.dock.runner.classes import class_from_json
from cloudgraft.dock.runner.connection import LARGEST_MESSAGE, Dialled, End
from cloudgraft.dock.runner.state import ResultPriority, RunnerState, Session
from cloudgraft.dock.runner.work import Job
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError
from cloudgraft.wire.driver import machine_from_pb, traits_to_pb
from cloudgraft.wire.pb import dock_pb2 as pb

# -- Messages of v1 on the driver's side -------------------------------------------------------------------------------


_TIMEOUT: Final = timedelta(minutes=5)  # for an operation without one


def hello(state: RunnerState) -> pb.Hello:
    """The driver's description of itself, with the results that no hub has acknowledged."""
    options, docked = state.options, state.docked
    return pb.Hello(
        protocol=PROTOCOL_NUMBER,
        kind=options.kind,
        api_version=options.api_version,
        name=options.settings.name or docked.name,
        version=options.settings.version,
        instance_id=state.instance_id,
        max_in_flight=options.settings.max_in_flight,
        capabilities=sorted(docked.capabilities),
        traits=traits_to_pb(docked.driver.traits),
        results=state.unacknowledged.waiting(),
    )


def decode_operation(message: pb.Operation) -> Operation:
    """Decodes an operation; raises InvalidArgumentError for an invalid one."""
    if message.list.page_token:
        raise InvalidArgumentError("a list has one page here")
    operation = operation_from_pb(message)
    return operation if operation.timeout > timedelta(0) else replace(operation, timeout=_TIMEOUT)


def encode_result(job: Job, result: Result) -> tuple[pb.Result, ResultPriority | None]:
    """Encodes a result; returns the message and the priority of keeping it, None for reads."""
    try:
        message = result_to_pb(job.id, job.hub_id, job.operation, result)
    except Exception as error:  # noqa: BLE001 - an author's code may return anything
        result = Result(status=status_of(error))
        message = result_to_pb(job.id, job.hub_id, job.operation, result)
    return message, priority_of(job, result)


def priority_of(job: Job, result: Result) -> ResultPriority | None:
    """The priority of keeping the result; None for a read."""
    if job.operation.verb is Verb.CREATE:
        return ResultPriority.CREATED if result.status.code is Code.OK else ResultPriority.NOT_CREATED
    return ResultPriority.DELETED if job.operation.verb is Verb.DELETE else None


# -- The session -------------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.dock")

_MISSED: Final = 3  # missed heartbeats after which a connection is dead
# limits and default for the seconds between heartbeats, whatever the hub asks for
_SHORTEST, _USUAL, _LONGEST = 0.05, 5.0, 300.0


class SessionV1(Session):
    """From hello to the end of the stream."""

    is_versioned = True

    def __init__(self, dialled: Dialled, state: RunnerState) -> None:
        super().__init__(dialled, state, f"/{SERVICE}/{CONNECT}")
        self._beats = 0
        self._hub_id = ""  # id of the hub's process, as its operations say
        self._largest = LARGEST_MESSAGE  # bytes
        self._draining: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def run(self) -> End:
        """See :class:`Session`."""
        try:
            async with asyncio.timeout(self._state.options.settings.handshake):
                answer = await self._shake_hands()
        except TimeoutError:
            return End(reason="the hub did not answer the hello in time")
        kind = answer.WhichOneof("message")
        if kind == "reject":
            return _rejected(answer.reject)
        if kind != "welcome":
            return End(reason=f"the hub answered the hello with {kind or 'nothing known'}")
        return await self._stay(answer.welcome)

    def deliver(self, message: pb.Result) -> None:
        """Sends a result, now or right after the handshake."""
        whole = pb.DriverMessage(result=message)
        if (size := whole.ByteSize()) > self._largest:
            text = f"the answer has {size} bytes, and this hub takes {self._largest}; it cannot be sent in part"
            whole = pb.DriverMessage(result=_failed(message.id, message.hub_id, InternalError(text)))
        self._outbox.put(whole)

    def announce(self, reason: str) -> None:
        """Sends bye: the hub sends nothing new, and still accepts the results of running operations."""
        self._outbox.put(pb.DriverMessage(bye=pb.Bye(reason=reason)))

    async def machine_class(self, name: str) -> MachineClass:
        """See :class:`Source`."""
        path = f"/{SERVICE}/GetMachineClass"
        found = await self._dialled.ask(path, pb.GetMachineClassRequest(name=name), pb.MachineClass)
        return class_from_json(found.json, name=name, key=self._state.options.key, revision=found.revision)

    async def secret(self, machine_class: MachineClass) -> Secret | None:
        """See :class:`Source`."""
        if not machine_class.secret:
            return None
        request = pb.GetSecretRequest(machine_class=machine_class.name)
        found = await self._dialled.ask(f"/{SERVICE}/GetSecret", request, pb.Secret)
        return Secret(
            name=machine_class.secret,
            namespace=machine_class.namespace,
            revision=found.revision,
            data=dict(found.data),
        )

    async def _shake_hands(self) -> pb.HubMessage:
        state = self._state
        greeting = hello(state)
        for result in greeting.results:
            if result.WhichOneof("answer") == "create":
                state.operations.made_late(machine_from_pb(result.create.machine))
        state.attach(self)  # from here on results go to this connection, so that none is lost between two
        await self._stream.write(pb.DriverMessage(hello=greeting).SerializeToString())
        data = await self._stream.read()
        if not isinstance(data, bytes):  # the end of the stream
            return pb.HubMessage()
        return pb.HubMessage.FromString(data)

    async def _stay(self, welcome: pb.Welcome) -> End:
        beat = min(max(_seconds(welcome.heartbeat) or _USUAL, _SHORTEST), _LONGEST)
        self._largest = min(welcome.max_message_bytes or LARGEST_MESSAGE, LARGEST_MESSAGE)
        self._state.welcomed(welcome.session_id)
        silence = _MISSED * beat
        return await self._serve(silence, self._beat(beat), self._listen(silence), self._drain())

    def _take(self, data: bytes) -> None:
        message = pb.HubMessage.FromString(data)
        match message.WhichOneof("message"):
            case "operation":
                self._begin(message.operation)
            case "cancel":
                self._state.operations.cancel(self._hub_id, message.cancel.id)
            case "acknowledge":
                self._state.unacknowledged.acknowledge(message.acknowledge.ids)
            case "changed":
                self._state.classes.forget(message.changed.machine_classes, message.changed.secrets)
            case "drain" if not self._draining.done():
                self._draining.set_result(_seconds(message.drain.grace))

    def _begin(self, message: pb.Operation) -> None:
        self._hub_id = self._state.classes.hub_id = message.hub_id
        known = self._state.unacknowledged.find(message.hub_id, message.id)
        if known is not None:
            self.deliver(known)
            return
        try:
            operation = decode_operation(message)
        except CloudgraftError as error:
            self.deliver(_failed(message.id, message.hub_id, error))
            return
        self._state.operations.begin(Job(id=message.id, hub_id=message.hub_id, operation=operation, on_done=self._done))

    def _done(self, job: Job, result: Result) -> None:
        """Keeps the result of a change, and sends it over whatever connection there is by now."""
        message, priority = encode_result(job, result)
        if priority is not None:
            self._state.unacknowledged.keep(message, priority)
        current = self._state.current
        if current is self or (priority is not None and isinstance(current, SessionV1)):
            current.deliver(message)

    # -- liveness ------------------------------------------------------------------------------------------------------

    async def _beat(self, every: float) -> End:
        while True:
            await asyncio.sleep(every)
            if not len(self._outbox):  # queued messages are a sign of life too, once they are written
                self._beats += 1
                self._outbox.put(pb.DriverMessage(heartbeat=pb.Heartbeat(number=self._beats)))

    async def _listen(self, silence: float) -> End:
        now = asyncio.get_running_loop().time
        while (until := self._heard + silence) > now():
            await asyncio.sleep(until - now())
            if now() - until > silence / _MISSED:
                # This process was suspended, not the hub silent: the hub's messages still wait to be read.
                self._heard = now()
        return End(reason=f"the hub was silent for {silence:g} s")

    async def _drain(self) -> End:
        grace = await self._draining
        log.info("the hub is closing: finishing the running operations first")
        await self._state.operations.idle(grace)
        self.announce("drained")
        await self.leave()
        return End(reason="the hub asked for it", was_drained=True)


def _failed(number: int, hub_id: str, error: CloudgraftError) -> pb.Result:
    status = status_of(error)
    return pb.Result(id=number, hub_id=hub_id, status=pb.Status(code=status.code.value, message=status.message))


def _seconds(duration: Duration) -> float:
    return duration_from_pb(duration).total_seconds()


def _rejected(reject: pb.Reject) -> End:
    code = code_from(reject.code)
    text = reject.message or "without a reason"
    if code is Code.ALREADY_EXISTS:
        text = f"{text} (another driver of this kind is connected)"
    return End(reason=f"the hub refused us: {code.name}: {text}", retry_after=_seconds(reject.retry_after))
