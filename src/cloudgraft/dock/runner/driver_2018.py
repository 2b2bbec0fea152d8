"""Adapts drivers written to the interface of 2018: Create, Delete and List with class meta, credentials and ids."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cloudgraft.dock.protocol.messages import MachineClass, Secret
from cloudgraft.dock.runner.adapter import current_class
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import InternalError, NotFoundError


@dataclass(frozen=True, slots=True)
class MachineClassMeta:
    """A machine class and its revision."""

    name: str
    revision: int


@dataclass(frozen=True, slots=True)
class SecretMeta:
    """A secret's name and revision."""

    secret_name: str
    namespace: str = ""
    revision: int = 1


class ClassData:
    """Gives a driver of 2018 its classes and secrets: those of the classes that it was called for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._classes: dict[str, tuple[MachineClass, Secret | None]] = {}

    def get_machine_class(self, meta: MachineClassMeta) -> str:
        """Returns the class as JSON."""
        with self._lock:
            found = self._classes.get(meta.name)
        if found is None:
            raise NotFoundError(f"the machine class {meta.name!r} is not known here")
        return found[0].json

    def get_secret(self, meta: SecretMeta) -> str:
        """Returns the secret as JSON of a Kubernetes Secret, with values in base64."""
        with self._lock:
            known = list(self._classes.values())
        for machine_class, secret in known:
            if secret is None or meta.namespace not in {"", secret.namespace}:
                continue
            # A class may name two. The hub returns the values of both for either name, under one of the names.
            if meta.secret_name and meta.secret_name in {secret.name, machine_class.also_named}:
                return _as_kubernetes(replace(secret, name=meta.secret_name))
        raise NotFoundError(f"no machine class of this driver has the secret {meta.secret_name!r}")

    def _keep(self, machine_class: MachineClass, secret: Secret | None) -> None:
        with self._lock:
            self._classes[machine_class.name] = (machine_class, secret)


class Driver2018(Protocol):
    """The interface of 2018. Calls run in threads, several at a time."""

    def create(
        self, machine_class: MachineClassMeta, credentials: str, machine_id: str, machine_name: str
    ) -> tuple[str, str]:
        """Creates a machine; returns providerID and node name. ``credentials`` and ``machine_id`` are empty."""

    def delete(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> None:
        """Deletes the machine with that providerID; one that is already gone is not an error."""

    def list(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> Mapping[str, str]:
        """Lists all machines of the class, or that one: providerID to name."""


def from_2018(make: Callable[[ClassData], Driver2018], *, traits: DriverTraits | None = None) -> BlockingDriver:
    """Adapts a driver of 2018 for :func:`cloudgraft.dock.run` in either protocol.

    ``make`` is its class, or a function: called once with the object that returns classes and secrets. Without
    ``traits``, assumes the least that such a driver promises: its machines are known by name, a second create of a
    name makes a second machine, and a machine that a list lacks may still exist.
    """
    data = ClassData()
    return _Adapted(make(data), data, traits)


_LEAST = DriverTraits(ownership=Ownership.NAME, idempotency=Idempotency.NONE, complete_list=False)


class _Adapted(BlockingDriver):
    ids_are_provider_ids = True

    def __init__(self, inner: Driver2018, data: ClassData, traits: DriverTraits | None) -> None:
        self._inner = inner
        self._data = data
        self.traits = traits or _LEAST

    def use(self, machine_class: MachineClass, secret: Secret | None) -> None:
        self._data._keep(machine_class, secret)  # noqa: SLF001 - the two are one

    def create(self, spec: MachineSpec) -> Machine:
        provider_id, node_name = self._inner.create(_meta(), "", "", spec.name)
        if not provider_id:
            raise InternalError(f"the driver made {spec.name!r} and gave no providerID")
        addresses = (node_name,) if node_name else ()
        return Machine(name=spec.name, machine_id=provider_id, provider_id=provider_id, addresses=addresses)

    def delete(self, machine: Machine) -> None:
        self._inner.delete(_meta(), "", machine.machine_id)

    def list(self) -> Sequence[Machine]:
        found = self._inner.list(_meta(), "", "")
        return [Machine(name=name, machine_id=key, provider_id=key) for key, name in found.items()]


def _meta() -> MachineClassMeta:
    machine_class = current_class()
    if machine_class is None:
        return MachineClassMeta("", 0)
    return MachineClassMeta(machine_class.name, machine_class.revision)


def _as_kubernetes(secret: Secret) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret.name, "namespace": secret.namespace},
            "data": {name: base64.b64encode(value).decode() for name, value in secret.data.items()},
        }
    )
