"""Runs providers and drivers without ``async``, for clouds whose library blocks.

The methods and their contracts are those of :class:`~cloudgraft.sdk.provider.Provider` and
:class:`~cloudgraft.sdk.driver.Driver`; read them there. Calls run concurrently in a bounded pool of threads: protect
shared state with a lock. Calls that change one group never overlap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.driver import Driver, DriverDeclarations, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import UnsupportedError
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod

_LISTS: Final = 2  # threads of one driver for lists, shapes and prices


class BlockingProvider(ABC):
    """A :class:`Provider` whose methods are plain functions."""

    Options: type | None = None  # see Provider

    @abstractmethod
    def node_groups(self) -> Sequence[NodeGroup]:
        """See :meth:`Provider.node_groups`."""

    @abstractmethod
    def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """See :meth:`Provider.node_group_for_node`."""

    @abstractmethod
    def target_size(self, group: str) -> int:
        """See :meth:`Provider.target_size`."""

    @abstractmethod
    def instances(self, group: str) -> Sequence[Instance]:
        """See :meth:`Provider.instances`."""

    @abstractmethod
    def increase_size(self, group: str, delta: int) -> None:
        """See :meth:`Provider.increase_size`."""

    @abstractmethod
    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """See :meth:`Provider.delete_nodes`."""

    @abstractmethod
    def decrease_target_size(self, group: str, delta: int) -> None:
        """See :meth:`Provider.decrease_target_size`."""

    def refresh(self) -> None:
        """See :meth:`Provider.refresh`."""

    def cleanup(self) -> None:
        """See :meth:`Provider.cleanup`."""

    def template(self, group: str) -> NodeTemplate:
        """See :meth:`Provider.template`."""
        raise UnsupportedError("this provider has no node templates")

    def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """See :meth:`Provider.options`."""
        raise UnsupportedError("this provider has no options of its own")

    def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """See :meth:`Provider.node_price`."""
        raise UnsupportedError("this provider knows no prices")

    def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """See :meth:`Provider.pod_price`."""
        raise UnsupportedError("this provider knows no prices")

    def gpu_label(self) -> str:
        """See :meth:`Provider.gpu_label`."""
        return ""

    def gpu_types(self) -> Collection[str]:
        """See :meth:`Provider.gpu_types`."""
        return ()

    def start(self) -> None:
        """See :meth:`Provider.start`."""

    def close(self) -> None:
        """See :meth:`Provider.close`."""


class BlockingDriver(DriverDeclarations, ABC):
    """A :class:`Driver` whose methods are plain functions."""

    @abstractmethod
    def create(self, spec: MachineSpec) -> Machine:
        """See :meth:`Driver.create`."""

    @abstractmethod
    def delete(self, machine: Machine) -> None:
        """See :meth:`Driver.delete`."""

    @abstractmethod
    def list(self) -> Sequence[Machine]:
        """See :meth:`Driver.list`."""

    def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """See :meth:`Driver.mark`."""
        raise UnsupportedError("this driver cannot mark machines that are there already")

    def shapes(self) -> Sequence[Shape]:
        """See :meth:`Driver.shapes`."""
        raise UnsupportedError("this driver does not know its cloud's machine types")

    def prices(self) -> Sequence[Price]:
        """See :meth:`Driver.prices`."""
        raise UnsupportedError("this driver does not know its cloud's prices")

    def start(self) -> None:
        """See :meth:`Driver.start`."""

    def close(self) -> None:
        """See :meth:`Driver.close`."""


AnyDriver = Driver | BlockingDriver
AnyProvider = Provider | BlockingProvider


def overrides(cls: type[AnyDriver], method: Literal["mark", "shapes", "prices"]) -> bool:
    """Returns whether a driver has this optional method: the base class only says that it is not supported."""
    base: type = Driver if issubclass(cls, Driver) else BlockingDriver
    return getattr(cls, method) is not getattr(base, method)


def as_provider(provider: AnyProvider, *, threads: int = 8) -> Provider:
    """Returns an async provider unchanged, and wraps a blocking one so that its calls run in their own threads."""
    return provider if isinstance(provider, Provider) else _OffloadedProvider(provider, threads)


def as_driver(driver: AnyDriver, *, threads: int = 8) -> Driver:
    """Returns an async driver unchanged, and wraps a blocking one so that its calls run in their own threads."""
    return driver if isinstance(driver, Driver) else _OffloadedDriver(driver, threads)


class _OffloadedProvider(Provider):
    def __init__(self, inner: BlockingProvider, threads: int) -> None:
        self._inner = inner
        self._pool = BlockingPool(type(inner).__name__, threads=threads)

    async def node_groups(self) -> Sequence[NodeGroup]:
        return await self._pool.run(self._inner.node_groups)

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        return await self._pool.run(self._inner.node_group_for_node, node)

    async def target_size(self, group: str) -> int:
        return await self._pool.run(self._inner.target_size, group)

    async def instances(self, group: str) -> Sequence[Instance]:
        return await self._pool.run(self._inner.instances, group)

    async def increase_size(self, group: str, delta: int) -> None:
        await self._pool.run(self._inner.increase_size, group, delta)

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        await self._pool.run(self._inner.delete_nodes, group, nodes)

    async def decrease_target_size(self, group: str, delta: int) -> None:
        await self._pool.run(self._inner.decrease_target_size, group, delta)

    async def refresh(self) -> None:
        await self._pool.run(self._inner.refresh)

    async def cleanup(self) -> None:
        await self._pool.run(self._inner.cleanup)

    async def template(self, group: str) -> NodeTemplate:
        return await self._pool.run(self._inner.template, group)

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        return await self._pool.run(self._inner.options, group, defaults)

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        return await self._pool.run(self._inner.node_price, node, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        return await self._pool.run(self._inner.pod_price, pod, start, end)

    async def gpu_label(self) -> str:
        return await self._pool.run(self._inner.gpu_label)

    async def gpu_types(self) -> Collection[str]:
        return await self._pool.run(self._inner.gpu_types)

    async def start(self) -> None:
        await self._pool.run(self._inner.start)

    async def close(self) -> None:
        self._pool.close()
        await _in_thread_of_its_own(self._inner.close)


class _OffloadedDriver(Driver):
    def __init__(self, inner: BlockingDriver, threads: int) -> None:
        self._inner = inner
        self._pool = BlockingPool(type(inner).__name__, threads=threads)
        # A separate pool: a hung list keeps its thread long after its caller gave up, and must not block a delete.
        self._lists = BlockingPool(f"{type(inner).__name__} (lists)", threads=_LISTS, waiting=_LISTS)
        self.traits = inner.traits
        self.MachineSettings = inner.MachineSettings

    def known_shapes(self) -> Sequence[Shape] | None:
        return self._inner.known_shapes()

    def missing(self) -> Mapping[str, str]:
        return self._inner.missing()

    async def create(self, spec: MachineSpec) -> Machine:
        return await self._pool.run(self._inner.create, spec)

    async def delete(self, machine: Machine) -> None:
        await self._pool.run(self._inner.delete, machine)

    async def list(self) -> Sequence[Machine]:
        return await self._lists.run(self._inner.list)

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        await self._pool.run(self._inner.mark, machine, tags)

    async def shapes(self) -> Sequence[Shape]:
        return await self._lists.run(self._inner.shapes)

    async def prices(self) -> Sequence[Price]:
        return await self._lists.run(self._inner.prices)

    async def start(self) -> None:
        await self._pool.run(self._inner.start)

    async def close(self) -> None:
        self._pool.close()
        self._lists.close()
        await _in_thread_of_its_own(self._inner.close)


async def _in_thread_of_its_own(call: Callable[[], None]) -> None:
    """Does not use the pool: all its threads may hang, and that is when closing matters."""
    pool = BlockingPool("close", threads=1)
    try:
        await pool.run(call)
    finally:
        pool.close()
