"""v1 on the driver's side: who we are, what is asked, and what became of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from cloudgraft.dock.protocol.codes import Code
from cloudgraft.dock.protocol.conversion_v1 import PROTOCOL, operation_from_pb, result_to_pb
from cloudgraft.dock.protocol.messages import DriverInfo, Operation, Result, Verb
from cloudgraft.dock.runner.docked import Docked
from cloudgraft.dock.runner.options import RunnerOptions
from cloudgraft.dock.runner.status import status_of
from cloudgraft.dock.runner.unacknowledged import Worth
from cloudgraft.dock.runner.work import Job
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.wire.pb import dock_pb2 as pb

__all__ = ["asked", "info_of", "told", "worth_of"]

_TIMEOUT: Final = timedelta(minutes=5)  # of an operation that says none


def info_of(options: RunnerOptions, docked: Docked, instance_id: str) -> DriverInfo:
    """Who we are."""
    settings = options.settings
    return DriverInfo(
        key=options.key,
        protocol=PROTOCOL,
        name=settings.name or docked.name,
        version=settings.version,
        instance_id=instance_id,
        max_in_flight=settings.max_in_flight,
        capabilities=frozenset(docked.capabilities),
        traits=docked.driver.traits,
    )


def asked(message: pb.Operation) -> Operation:
    """What is to be done; raises InvalidArgumentError for what makes no sense."""
    if message.list.page_token:
        raise InvalidArgumentError("a list has one page here")
    operation = operation_from_pb(message)
    return operation if operation.timeout > timedelta(0) else replace(operation, timeout=_TIMEOUT)


def told(job: Job, result: Result) -> tuple[pb.Result, Worth | None]:
    """What the hub is told, and what it is worth keeping; nothing for reads."""
    try:
        message = result_to_pb(job.id, job.hub_id, job.operation, result)
    except Exception as error:  # noqa: BLE001 - an author's answer may be anything
        result = Result(status=status_of(error))
        message = result_to_pb(job.id, job.hub_id, job.operation, result)
    return message, worth_of(job, result)


def worth_of(job: Job, result: Result) -> Worth | None:
    """What the result is worth keeping; None for that of a read."""
    if job.operation.verb is Verb.CREATE:
        return Worth.CREATED if result.status.code is Code.OK else Worth.NOT_CREATED
    return Worth.DELETED if job.operation.verb is Verb.DELETE else None
