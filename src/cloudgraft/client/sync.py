"""Wraps the client for programs without an event loop. Usable from any thread.

    with SyncCloudProvider.connect("cloud-config.yaml") as provider:
        provider.refresh()
        for group in provider.node_groups():
            print(group.id, group.target_size())

Every method does what its async twin does and waits for it; caches and errors are the twin's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.cloud_provider import CloudProvider, NodeGroup, PricingModel, ResourceLimiter
from cloudgraft.sdk.errors import DeadlineError, PreconditionError
from cloudgraft.sdk.types import NodeRef

# -- Event loop in a thread --------------------------------------------------------------------------------------------


_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines for any number of threads, on one loop, until it is closed."""

    def __init__(self, name: str) -> None:
        """Starts the thread at once. It is a daemon: a program that forgets to close it can still end."""
        self._loop = asyncio.new_event_loop()
        self._guard = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine to its end and returns its result; callable from any thread but the loop's own.

        When the wait is interrupted (Ctrl-C), the coroutine is cancelled too. When this is closed meanwhile, the wait
        ends with DeadlineError.
        """
        with self._guard:
            refusal = self._refusal()
            if refusal is not None:
                work.close()
                raise PreconditionError(refusal)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise DeadlineError("the client was closed during the call: what the call did is not known") from None
        except BaseException:
            future.cancel()  # without effect on one that has ended
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a last coroutine, cancels the others, ends the thread and closes the loop. Idempotent."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(last(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _refusal(self) -> str | None:
        if self._closed:
            return "this client is closed: make a new one"
        if threading.current_thread() is self._thread:
            return "the sync client cannot be called from its own event loop: use the async one there"
        return None

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


# -- Blocking twins of the client's classes ----------------------------------------------------------------------------


class _Twin(Protocol[_S]):
    """A blocking twin: the object it wraps, and the thread that runs its calls."""

    _inner: _S
    _thread: LoopThread


def _blocking(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_Twin[_S], _P], _T]:
    """The blocking form of a method of the async twin, with its parameters and its documentation."""

    @functools.wraps(method)
    def call(self: _Twin[_S], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._thread.run(method(self._inner, *args, **kwargs))

    return call


class SyncNodeGroup:
    """A blocking :class:`~cloudgraft.client.cloud_provider.NodeGroup`."""

    def __init__(self, thread: LoopThread, group: NodeGroup) -> None:
        self._thread = thread
        self._inner = group

    def __repr__(self) -> str:
        """The group's id and limits."""
        return f"Sync{self._inner!r}"

    @property
    def id(self) -> str:
        """See NodeGroup."""
        return self._inner.id

    @property
    def min_size(self) -> int:
        """See NodeGroup."""
        return self._inner.min_size

    @property
    def max_size(self) -> int:
        """See NodeGroup."""
        return self._inner.max_size

    @property
    def debug(self) -> str:
        """See NodeGroup."""
        return self._inner.debug

    @property
    def exist(self) -> bool:
        """See NodeGroup."""
        return self._inner.exist

    @property
    def autoprovisioned(self) -> bool:
        """See NodeGroup."""
        return self._inner.autoprovisioned

    target_size = _blocking(NodeGroup.target_size)
    increase_size = _blocking(NodeGroup.increase_size)
    atomic_increase_size = _blocking(NodeGroup.atomic_increase_size)
    delete_nodes = _blocking(NodeGroup.delete_nodes)
    force_delete_nodes = _blocking(NodeGroup.force_delete_nodes)
    decrease_target_size = _blocking(NodeGroup.decrease_target_size)
    nodes = _blocking(NodeGroup.nodes)
    template_node_info = _blocking(NodeGroup.template_node_info)
    create = _blocking(NodeGroup.create)
    delete = _blocking(NodeGroup.delete)
    get_options = _blocking(NodeGroup.get_options)


class SyncPricingModel:
    """A blocking :class:`~cloudgraft.client.cloud_provider.PricingModel`."""

    def __init__(self, thread: LoopThread, model: PricingModel) -> None:
        self._thread = thread
        self._inner = model

    node_price = _blocking(PricingModel.node_price)
    pod_price = _blocking(PricingModel.pod_price)


class SyncCloudProvider:
    """A blocking :class:`~cloudgraft.client.cloud_provider.CloudProvider`. Close it, or use it with ``with``."""

    def __init__(self, make: Callable[[], CloudProvider]) -> None:
        """Calls ``make`` for the provider to wrap, and closes it with this one."""
        self._inner = make()  # first: when it raises, no thread is left behind
        self._thread = LoopThread("cloudgraft-client")

    @classmethod
    def connect(
        cls, config: CloudConfig | str | Path, *, resource_limiter: ResourceLimiter | None = None
    ) -> SyncCloudProvider:
        """A provider for the server of a config, or of a cloud-config file; the first call dials."""
        return cls(lambda: CloudProvider.connect(config, resource_limiter=resource_limiter))

    @property
    def name(self) -> str:
        """See CloudProvider."""
        return self._inner.name

    def node_groups(self) -> list[SyncNodeGroup]:
        """See CloudProvider."""
        return [SyncNodeGroup(self._thread, group) for group in self._thread.run(self._inner.node_groups())]

    def node_group_for_node(self, node: NodeRef) -> SyncNodeGroup | None:
        """See CloudProvider."""
        group = self._thread.run(self._inner.node_group_for_node(node))
        return None if group is None else SyncNodeGroup(self._thread, group)

    def pricing(self) -> SyncPricingModel:
        """See CloudProvider."""
        return SyncPricingModel(self._thread, self._inner.pricing())

    def get_resource_limiter(self) -> ResourceLimiter:
        """See CloudProvider."""
        return self._inner.get_resource_limiter()

    has_instance = _blocking(CloudProvider.has_instance)
    get_available_machine_types = _blocking(CloudProvider.get_available_machine_types)
    new_node_group = _blocking(CloudProvider.new_node_group)
    gpu_label = _blocking(CloudProvider.gpu_label)
    get_available_gpu_types = _blocking(CloudProvider.get_available_gpu_types)
    get_node_gpu_config = _blocking(CloudProvider.get_node_gpu_config)
    cleanup = _blocking(CloudProvider.cleanup)
    refresh = _blocking(CloudProvider.refresh)

    def close(self) -> None:
        """Closes the connection and ends the thread; calls of other threads end with an error. Idempotent."""
        self._thread.close(self._inner.close)

    def __enter__(self) -> Self:
        """The provider itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connection and ends the thread."""
        self.close()
