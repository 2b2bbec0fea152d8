"""Requests resources of a remote cluster by ResourceSlices, and trusts only the status of the response."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudgraft.discovery.model import Resources
from cloudgraft.kube.objects import CustomObject, Manifest
from cloudgraft.liqo.ensure import find, name_of, steps
from cloudgraft.liqo.manifests import (
    OUR_SLICES,
    REMOTE,
    SHAPE,
    SLICES,
    TAGS,
    VIRTUAL_NODE_OBJECTS,
    is_ours,
    named,
    section,
)
from cloudgraft.liqo.placement import ClusterError
from cloudgraft.liqo.shapes import is_enough
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
)
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity

if TYPE_CHECKING:  # an extra, and slow to import
    from cloudgraft.kube.client import KubeClient

PROVIDER_ID = "liqo://{name}"
_REPLICATED = "liqo.io/replicated"


class Answer(enum.Enum):
    """A remote cluster's response to a slice."""

    NONE = "none yet"
    GRANTED = "granted"
    REFUSED = "refused"  # denied, or less than requested


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The parts of a ResourceSlice that we read."""

    name: str
    space: str
    uid: str
    cluster: str
    shape: str
    asked: Resources
    tags: Mapping[str, str]
    answer: Answer
    why: str  # the reason for the answer
    created_at: float
    is_deleting: bool
    is_ours: bool

    @property
    def is_granted(self) -> bool:
        """Whether the cluster has granted all that was requested."""
        return self.answer is Answer.GRANTED

    def machine(self) -> Machine:
        """The machine for the engine."""
        return Machine(
            name=self.name,
            machine_id=self.uid,
            provider_id=PROVIDER_ID.format(name=self.name),
            state=self._state(),
            tags=self.tags,
            created_at=datetime.fromtimestamp(self.created_at, UTC) if self.created_at else None,
            reason=f"cluster {self.cluster}" + (f": {self.why}" if self.why else ""),
            addresses=(self.name,),
            failure=OutOfStockError.slug if self.answer is Answer.REFUSED else "",
        )

    def _state(self) -> MachineState:
        if self.is_deleting:
            return MachineState.DELETING
        states = {Answer.GRANTED: MachineState.RUNNING, Answer.REFUSED: MachineState.FAILED}
        return states.get(self.answer, MachineState.PENDING)


def slice_of(found: CustomObject) -> Slice:
    """Parses an object."""
    asked = _amounts(section(found, "spec").get("resources"))
    answer, why = answer_of(asked, section(found, "status"))
    return Slice(
        name=found.name,
        space=found.namespace,
        uid=found.uid,
        cluster=found.labels.get(REMOTE, ""),
        shape=found.annotations.get(SHAPE, ""),
        asked=asked,
        tags=_tags(found.annotations.get(TAGS, "")),
        answer=answer,
        why=why,
        created_at=found.created_at,
        is_deleting=found.deleting,
        is_ours=is_ours(found) and _REPLICATED not in found.labels,
    )


def answer_of(asked: Resources, status: Mapping[str, object]) -> tuple[Answer, str]:
    """The answer and its reason. Reads the status, not the spec: the grant may be less than the request."""
    listed = status.get("conditions")
    conditions = {
        str(one.get("type")): one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping)
    }
    for kind in ("Authentication", "Resources"):
        if conditions.get(kind, {}).get("status") == "Denied":
            reported = " ".join(str(conditions[kind].get(key) or "") for key in ("reason", "message")).strip()
            return Answer.REFUSED, f"it denied the slice ({kind}): {reported or 'no reason given'}"
    if any(conditions.get(kind, {}).get("status") != "Accepted" for kind in ("Authentication", "Resources")):
        return Answer.NONE, "it has not answered yet"
    granted = _amounts(status.get("resources"))
    if not is_enough(granted, asked):
        less = ", ".join(
            f"{name} {granted.get(name, '0')} of {amount}"
            for name, amount in asked.items()
            if granted.get(name, Quantity(0)) < amount
        )
        return Answer.REFUSED, f"it granted less than the shape: {less}"
    return Answer.GRANTED, ""


class Slices:
    """The ResourceSlices of one consumer."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def all(self) -> list[Slice]:
        """Every slice of ours."""
        return [slice_of(found) for found in (await self._client.list(OUR_SLICES)).items]

    async def find(self, name: str) -> Slice | None:
        """Finds a slice by name in any namespace: the names are unique, because they become nodes."""
        for found in (await self._client.list(named(SLICES, name))).items:
            if _REPLICATED not in found.labels:
                return slice_of(found)
        return None

    async def make(self, manifest: Manifest, space: str) -> Slice:
        """Creates a slice; returns the existing one of that name, in any namespace.

        For a name that is taken elsewhere, Liqo's own webhook responds as if we lacked the right.
        """
        try:
            return slice_of(await self._client.create(SLICES, manifest, namespace=space))
        except (AlreadyExistsError, PermissionDeniedError) as error:
            found = await self.find(name_of(manifest))
            if found is not None:
                return found
            if isinstance(error, PermissionDeniedError):
                raise
            raise ConflictError(f"the slice {name_of(manifest)} is being deleted") from None

    async def answered(self, asked: Slice, seconds: float) -> Slice:
        """Waits for the grant. Raises ClusterError when the slice is refused, gone, or not answered in time."""
        seen = asked
        try:
            async with asyncio.timeout(seconds):
                async for _ in steps():
                    found = await find(self._client, SLICES, asked.name, asked.space)
                    if found is None or found.uid != asked.uid or found.deleting:
                        raise ClusterError("the slice was deleted", cools=False)
                    seen = slice_of(found)
                    if seen.answer is Answer.REFUSED:
                        raise ClusterError(seen.why)
                    if seen.answer is Answer.GRANTED:
                        return seen
        except TimeoutError:
            raise ClusterError(f"it did not answer within {seconds:g} s") from None
        raise AssertionError  # steps have no end

    async def delete(self, one: Slice) -> None:
        """Requests its deletion. It exists until Liqo has drained and removed the node."""
        try:
            await self._client.delete(SLICES, one.name, namespace=one.space, uid=one.uid, foreground=True)
        except (NotFoundError, ConflictError):  # it is gone, and perhaps there is another of its name
            return

    async def gone(self, one: Slice, seconds: float) -> bool:
        """Waits until it is gone with its virtual node: of two with one name, Liqo would remove the wrong one."""
        try:
            async with asyncio.timeout(seconds):
                async for _ in steps():
                    found = await find(self._client, SLICES, one.name, one.space)
                    if found is not None and found.uid != one.uid:
                        return True
                    if found is None and not await self._has_virtual_node(one):
                        return True
        except TimeoutError:
            return False
        raise AssertionError  # steps have no end

    async def _has_virtual_node(self, one: Slice) -> bool:
        found = (await self._client.list(named(VIRTUAL_NODE_OBJECTS, one.name), namespace=one.space)).items
        return bool(found)

    async def remove(self, one: Slice, seconds: float) -> None:
        """Deletes it and waits until it is gone. Raises DeadlineError on timeout."""
        await self.delete(one)
        if not await self.gone(one, seconds):
            raise DeadlineError(f"the slice {one.name} of cluster {one.cluster} is being deleted, and is still there")


def _amounts(value: object) -> dict[str, Quantity]:
    amounts: dict[str, Quantity] = {}
    for name, amount in value.items() if isinstance(value, Mapping) else ():
        try:
            amounts[name] = Quantity(str(amount))
        except InvalidQuantityError:
            continue
    return amounts


def _tags(text: str) -> dict[str, str]:
    try:
        read = json.loads(text) if text else {}
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in read.items()} if isinstance(read, dict) else {}
