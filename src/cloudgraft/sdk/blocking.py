"""Runs providers and drivers without ``async``, for clouds whose library blocks.

The methods and their contracts are those of :class:`~cloudgraft.sdk.provider.Provider` and
:class:`~cloudgraft.sdk.driver.Driver`; a test holds the docstrings equal. Calls run concurrently in a bounded pool of
threads.
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
    """Node groups, as the autoscaler sees them, for a library that blocks.

    The same as :class:`Provider`, with plain methods, which run in threads. Rules for every method:

    - It may be called at any time, before the first :meth:`refresh` too, and in several threads at once: protect
      shared state with a lock. Calls that change one group never overlap.
    - The autoscaler times out after 5 s and makes thousands of calls per loop: answer from memory, and record a
      change instead of waiting until it is done.
    - Raise an error of :mod:`cloudgraft.sdk.errors`. Anything else is reported to the caller as a bug.
    - A group id argument was in the latest result of :meth:`node_groups`: cloudgraft refuses others itself.
    """

    # A dataclass or pydantic model for the provider's `options` in the configuration, as that of a driver: see
    # cloudgraft.sdk.driver.DriverDeclarations. None: the provider is constructed without arguments.
    Options: type | None = None

    @abstractmethod
    def node_groups(self) -> Sequence[NodeGroup]:
        """Returns all groups. Ids are unique and stable; ``0 <= min_size <= max_size``.

        Must not fail and must not be partial: the autoscaler takes an error for "no groups at all". It reads the list,
        and min and max, only after a :meth:`refresh`.
        """

    @abstractmethod
    def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """Returns the group of a node, or None when it is not yours (such as a control-plane node): never an error.

        Match the provider id, else the name. Must also return the group for ids of instances that never became nodes,
        for failed ones, and for a node being deleted until its Node object is gone. The group must be one of
        :meth:`node_groups`, with the same min and max.
        """

    @abstractmethod
    def target_size(self, group: str) -> int:
        """Returns the desired size of the group: machines being created count, machines being deleted do not.

        Must reflect a change in the next call.
        """

    @abstractmethod
    def instances(self, group: str) -> Sequence[Instance]:
        """Returns all machines of the group, also those being created or deleted. Ids are unique across all groups.

        List a machine that could not be created as CREATING with an error until :meth:`delete_nodes` deletes it: so the
        autoscaler learns of a stock-out within one loop.
        """

    @abstractmethod
    def increase_size(self, group: str, delta: int) -> None:
        """Adds ``delta`` machines (``delta > 0``, and the new target is within max: cloudgraft has checked both).

        Return once the new target is recorded. After an error nothing may have been started; after success the
        target has grown by exactly ``delta``. Two calls are two increases.
        """

    @abstractmethod
    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Deletes exactly these machines and lowers the target by the number of those not being deleted already.

        Idempotent: a machine that is being deleted or already gone is not an error and changes nothing. A node of
        another group is an error, and then no machine may be deleted. Do not check ``min_size``: that is the
        autoscaler's job, and failed machines must be deleted even below it. Never replace a deleted machine.
        """

    @abstractmethod
    def decrease_target_size(self, group: str, delta: int) -> None:
        """Cancels up to ``-delta`` requested machines that do not exist yet (``delta < 0``: cloudgraft has checked it).

        Never deletes a machine. The target falls to ``target + delta``, or to the number of existing machines if that
        is more. It is not an error when nothing can be cancelled.
        """

    def refresh(self) -> None:
        """Called before every loop. An error ends that loop and has no other effect."""

    def cleanup(self) -> None:
        """Called when the autoscaler shuts down. May be called twice or never; must not delete machines."""

    def template(self, group: str) -> NodeTemplate:
        """Returns the template of a new node of the group. Without it a group cannot be scaled up from zero."""
        raise UnsupportedError("this provider has no node templates")

    def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Returns the autoscaling options of this group, or None for the autoscaler's defaults.

        ``defaults`` holds the values of the autoscaler's flags. Four fifths of all calls come here: be quick.
        """
        raise UnsupportedError("this provider has no options of its own")

    def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """Returns the price of a node for that period. The node is mostly a template: use its labels or its name."""
        raise UnsupportedError("this provider knows no prices")

    def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """Returns the lowest possible price of a pod for that period, on a machine that fits it exactly."""
        raise UnsupportedError("this provider knows no prices")

    def gpu_label(self) -> str:
        """Returns the key of the label with a node's GPU type; empty when there is none. Must not fail."""
        return ""

    def gpu_types(self) -> Collection[str]:
        """Returns the GPU types on offer; only used in the autoscaler's metrics."""
        return ()

    def start(self) -> None:
        """Called once before the first call. Raise when the provider cannot be used: the server then does not start."""

    def close(self) -> None:
        """Called once after the last call. Close connections and stop tasks here."""


class BlockingDriver(DriverDeclarations, ABC):
    """Machines in one cloud account, for a library that blocks. Most drivers are of this kind.

    The same as :class:`Driver`, with plain methods, which may wait for the cloud: they run in threads of their own.
    Every method may be called in several threads at once: protect shared state with a lock. Give every request a
    timeout: a thread cannot be interrupted, and a driver has few of them.

    Raise an error of :mod:`cloudgraft.sdk.errors`: its class decides whether the engine retries the call and which
    error the autoscaler gets. Any other exception counts as a bug, and the outcome as unknown.
    """

    @abstractmethod
    def create(self, spec: MachineSpec) -> Machine:
        """Orders one machine and returns as soon as the cloud has accepted it; it need not be running yet.

        The engine calls it again with the same name after a crash or a lost response; ``traits.idempotency`` declares
        what happens then. Set ``spec.tags`` on the machine in the same call that creates it.

        Raise DeadlineError when the call was sent and its outcome is not known: no response, a lost connection, a 5xx.
        The engine then looks for the machine in the list. Most other errors promise that nothing was done, and after a
        wrong promise the engine creates a second machine: see ``nothing_done`` of the errors.
        """

    @abstractmethod
    def delete(self, machine: Machine) -> None:
        """Asks the cloud to delete the machine and everything created for it. A missing machine is not an error.

        Return as soon as the cloud has accepted it: a list shows when the machine is gone. Delete by ``machine_id``; a
        NotFoundError means that no machine has this id any more.
        """

    @abstractmethod
    def list(self) -> Sequence[Machine]:
        """Returns every machine in the account that may be ours, from all pages. Raise rather than return a part.

        The engine takes a listed machine as accepted: it comes up by itself, or fails. Where your create takes several
        steps, leave a half-made machine out of the list: the engine then repeats a create that died, which finishes it.
        List it as FAILED when no create has continued it for long, so that the engine deletes it.

        A driver of several places that can tell from a machine's id which place it is in may return a
        :class:`PartialList` when one of them is unavailable.
        """

    def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Sets tags on an existing machine, and removes those whose value is None. Its other tags stay.

        Called for machines that an operator adopts or releases. list() must then return the tags as it returns those of
        create(). Raise NotFoundError when the machine no longer exists, or when its id now belongs to another one.
        """
        raise UnsupportedError("this driver cannot mark machines that are there already")

    def shapes(self) -> Sequence[Shape]:
        """Returns the machine types on offer, each once. Groups of these shapes need no ``template.capacity``."""
        raise UnsupportedError("this driver does not know its cloud's machine types")

    def prices(self) -> Sequence[Price]:
        """Returns the price of each shape whose price the cloud publishes. A shape left out no longer has a price."""
        raise UnsupportedError("this driver does not know its cloud's prices")

    def start(self) -> None:
        """Called once before the first call. Open connections here. After an error the engine calls it again later."""

    def close(self) -> None:
        """Called once after the last call. Close connections and stop threads here."""


AnyDriver = Driver | BlockingDriver
AnyProvider = Provider | BlockingProvider


def overrides(cls: type[AnyDriver], method: Literal["mark", "shapes", "prices", "missing"]) -> bool:
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


def author_class(driver: AnyDriver) -> type:
    """The class that the driver's author wrote, for messages: also of a blocking driver that as_driver() wrapped."""
    return type(driver.inner) if isinstance(driver, _OffloadedDriver) else type(driver)


class _OffloadedDriver(Driver):
    def __init__(self, inner: BlockingDriver, threads: int) -> None:
        self.inner = inner
        self._pool = BlockingPool(type(inner).__name__, threads=threads)
        # A separate pool: a hung list keeps its thread long after its caller gave up, and must not block a delete.
        self._lists = BlockingPool(f"{type(inner).__name__} (lists)", threads=_LISTS, waiting=_LISTS)
        self.traits = inner.traits
        self.MachineSettings = inner.MachineSettings

    def known_shapes(self) -> Sequence[Shape] | None:
        return self.inner.known_shapes()

    def missing(self) -> Mapping[str, str]:
        return self.inner.missing()

    async def create(self, spec: MachineSpec) -> Machine:
        return await self._pool.run(self.inner.create, spec)

    async def delete(self, machine: Machine) -> None:
        await self._pool.run(self.inner.delete, machine)

    async def list(self) -> Sequence[Machine]:
        return await self._lists.run(self.inner.list)

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        await self._pool.run(self.inner.mark, machine, tags)

    async def shapes(self) -> Sequence[Shape]:
        return await self._lists.run(self.inner.shapes)

    async def prices(self) -> Sequence[Price]:
        return await self._lists.run(self.inner.prices)

    async def start(self) -> None:
        await self._pool.run(self.inner.start)

    async def close(self) -> None:
        self._pool.close()
        self._lists.close()
        await _in_thread_of_its_own(self.inner.close)


async def _in_thread_of_its_own(call: Callable[[], None]) -> None:
    """Does not use the pool: all its threads may hang, and that is when closing matters."""
    pool = BlockingPool("close", threads=1)
    try:
        await pool.run(call)
    finally:
        pool.close()
