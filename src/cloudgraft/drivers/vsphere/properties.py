"""Reads properties of many objects in pages, through vCenter's PropertyCollector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cloudgraft.drivers.vsphere.errors import error_of_fault
from cloudgraft.drivers.vsphere.pyvmomi import Data, Reference, vim, vmodl
from cloudgraft.drivers.vsphere.session import Session
from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError
from cloudgraft.sdk.list_budget import bounded

_COLLECTOR: Final = vmodl.query.PropertyCollector


@dataclass(frozen=True, slots=True)
class Found:
    """An object, and those of its properties that are set."""

    reference: Reference
    properties: Mapping[str, Data]


def children(session: Session, folder: Reference, kind: Data, paths: Sequence[str], page_size: int) -> list[Found]:
    """The objects of that kind that are in a folder itself. Every page, or an error."""
    step = _COLLECTOR.TraversalSpec(type=vim.Folder, path="childEntity", skip=False)
    start = _COLLECTOR.ObjectSpec(obj=folder, skip=True, selectSet=[step])
    return list(bounded(_pages(session, "list of virtual machines", [start], kind, paths, page_size)))


def several(session: Session, what: str, references: Sequence[Reference], paths: Sequence[str]) -> list[Found]:
    """Properties of some objects of one kind. Those that are gone by now make it an error."""
    if not references:
        return []
    objects = [_COLLECTOR.ObjectSpec(obj=reference, skip=False) for reference in references]
    return list(_pages(session, what, objects, type(references[0]), paths, 0))


def one(session: Session, what: str, reference: Reference, paths: Sequence[str]) -> Mapping[str, Data]:
    """Properties of one object."""
    return several(session, what, [reference], paths)[0].properties


def _pages(
    session: Session, what: str, objects: Sequence[Data], kind: Data, paths: Sequence[str], page_size: int
) -> Iterator[Found]:
    wanted = _COLLECTOR.PropertySpec(type=kind, pathSet=list(paths), all=False)
    spec = _COLLECTOR.FilterSpec(objectSet=list(objects), propSet=[wanted])
    options = _COLLECTOR.RetrieveOptions(maxObjects=page_size or None)
    page = session.read(
        what, lambda content: authenticated(content.propertyCollector.RetrievePropertiesEx([spec], options))
    )
    while page is not None:
        token = page.token
        try:
            yield from [_found(one, what) for one in page.objects]
            if not token:
                return
            page = _next_page(session, what, token)
        except BaseException:
            if token:
                _give_up(session, what, token)
            raise


def _next_page(session: Session, what: str, token: str) -> Data:
    try:
        return session.read(
            what, lambda content: authenticated(content.propertyCollector.ContinueRetrievePropertiesEx(token))
        )
    except InvalidArgumentError as error:  # a page is given out once: after a lost answer there is no way back to it
        raise UnavailableError(f"{what}: it broke off in the middle: {error.message}") from error


def _give_up(session: Session, what: str, token: str) -> None:
    with suppress(Exception):  # vCenter forgets it with the session at the latest
        session.read(what, lambda content: content.propertyCollector.CancelRetrievePropertiesEx(token))


def authenticated(answer: Data) -> Data:
    """The answer; but without a session it may be one that only says of each property that there is no session."""
    for content in getattr(answer, "objects", answer) or ():
        for missing in content.missingSet or ():
            if isinstance(_fault(missing), vim.fault.NotAuthenticated):
                raise _fault(missing)
    return answer


def _fault(missing: Data) -> Data:
    return missing.fault.fault if hasattr(missing.fault, "fault") else missing.fault


def _found(content: Data, what: str) -> Found:
    for missing in content.missingSet or ():
        fault = _fault(missing)
        if not isinstance(fault, vmodl.fault.ManagedObjectNotFound):
            raise error_of_fault(fault, f"{what}: {missing.path}", is_change=False)
    return Found(content.obj, {prop.name: prop.val for prop in content.propSet or ()})
