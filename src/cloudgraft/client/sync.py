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
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.cloud_provider import CloudProvider, PricingModel, ResourceLimiter
from cloudgraft.client.gpu import GpuConfig
from cloudgraft.client.node_group import NodeGroup
from cloudgraft.sdk.errors import DeadlineError, PreconditionError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeRef, NodeTemplate, Pod, Taint

# -- Event loop in a thread --------------------------------------------------------------------------------------------


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


class SyncNodeGroup:
    """A blocking :class:`~cloudgraft.client.node_group.NodeGroup`."""

    def __init__(self, thread: LoopThread, group: NodeGroup) -> None:
        self._run = thread.run
        self._group = group

    def __repr__(self) -> str:
        """The group's id and limits."""
        return f"Sync{self._group!r}"

    @property
    def id(self) -> str:
        """See NodeGroup."""
        return self._group.id

    @property
    def min_size(self) -> int:
        """See NodeGroup."""
        return self._group.min_size

    @property
    def max_size(self) -> int:
        """See NodeGroup."""
        return self._group.max_size

    @property
    def debug(self) -> str:
        """See NodeGroup."""
        return self._group.debug

    @property
    def exist(self) -> bool:
        """See NodeGroup."""
        return self._group.exist

    @property
    def autoprovisioned(self) -> bool:
        """See NodeGroup."""
        return self._group.autoprovisioned

    def target_size(self) -> int:
        """See NodeGroup."""
        return self._run(self._group.target_size())

    def increase_size(self, delta: int) -> None:
        """See NodeGroup."""
        self._run(self._group.increase_size(delta))

    def atomic_increase_size(self, delta: int) -> None:
        """See NodeGroup."""
        self._run(self._group.atomic_increase_size(delta))

    def delete_nodes(self, nodes: Sequence[NodeRef]) -> None:
        """See NodeGroup."""
        self._run(self._group.delete_nodes(nodes))

    def force_delete_nodes(self, nodes: Sequence[NodeRef]) -> None:
        """See NodeGroup."""
        self._run(self._group.force_delete_nodes(nodes))

    def decrease_target_size(self, delta: int) -> None:
        """See NodeGroup."""
        self._run(self._group.decrease_target_size(delta))

    def nodes(self) -> list[Instance]:
        """See NodeGroup."""
        return self._run(self._group.nodes())

    def template_node_info(self) -> NodeTemplate | None:
        """See NodeGroup."""
        return self._run(self._group.template_node_info())

    def create(self) -> NoReturn:
        """See NodeGroup."""
        self._run(self._group.create())

    def delete(self) -> None:
        """See NodeGroup."""
        self._run(self._group.delete())

    def get_options(self, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """See NodeGroup."""
        return self._run(self._group.get_options(defaults))


class SyncPricingModel:
    """A blocking :class:`~cloudgraft.client.cloud_provider.PricingModel`."""

    def __init__(self, thread: LoopThread, model: PricingModel) -> None:
        self._run = thread.run
        self._model = model

    def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """See PricingModel."""
        return self._run(self._model.node_price(node, start, end))

    def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """See PricingModel."""
        return self._run(self._model.pod_price(pod, start, end))


class SyncCloudProvider:
    """A blocking :class:`~cloudgraft.client.cloud_provider.CloudProvider`. Close it, or use it with ``with``."""

    def __init__(self, make: Callable[[], CloudProvider]) -> None:
        """Calls ``make`` for the provider to wrap, and closes it with this one."""
        self._provider = make()  # first: when it raises, no thread is left behind
        self._thread = LoopThread("cloudgraft-client")
        self._run = self._thread.run

    @classmethod
    def connect(
        cls, config: CloudConfig | str | Path, *, resource_limiter: ResourceLimiter | None = None
    ) -> SyncCloudProvider:
        """A provider for the server of a config, or of a cloud-config file; the first call dials."""
        return cls(lambda: CloudProvider.connect(config, resource_limiter=resource_limiter))

    @property
    def name(self) -> str:
        """See CloudProvider."""
        return self._provider.name

    def node_groups(self) -> list[SyncNodeGroup]:
        """See CloudProvider."""
        return [SyncNodeGroup(self._thread, group) for group in self._run(self._provider.node_groups())]

    def node_group_for_node(self, node: NodeRef) -> SyncNodeGroup | None:
        """See CloudProvider."""
        group = self._run(self._provider.node_group_for_node(node))
        return None if group is None else SyncNodeGroup(self._thread, group)

    def has_instance(self, node: NodeRef) -> bool:
        """See CloudProvider."""
        return self._run(self._provider.has_instance(node))

    def pricing(self) -> SyncPricingModel:
        """See CloudProvider."""
        return SyncPricingModel(self._thread, self._provider.pricing())

    def get_available_machine_types(self) -> list[str]:
        """See CloudProvider."""
        return self._run(self._provider.get_available_machine_types())

    def new_node_group(
        self,
        machine_type: str,
        *,
        labels: Mapping[str, str] | None = None,
        system_labels: Mapping[str, str] | None = None,
        taints: Sequence[Taint] = (),
        extra_resources: Mapping[str, Quantity] | None = None,
    ) -> NoReturn:
        """See CloudProvider."""
        self._run(
            self._provider.new_node_group(
                machine_type,
                labels=labels,
                system_labels=system_labels,
                taints=taints,
                extra_resources=extra_resources,
            )
        )

    def get_resource_limiter(self) -> ResourceLimiter:
        """See CloudProvider."""
        return self._provider.get_resource_limiter()

    def gpu_label(self) -> str:
        """See CloudProvider."""
        return self._run(self._provider.gpu_label())

    def get_available_gpu_types(self) -> frozenset[str] | None:
        """See CloudProvider."""
        return self._run(self._provider.get_available_gpu_types())

    def get_node_gpu_config(self, node: NodeRef | NodeTemplate) -> GpuConfig | None:
        """See CloudProvider."""
        return self._run(self._provider.get_node_gpu_config(node))

    def cleanup(self) -> None:
        """See CloudProvider."""
        self._run(self._provider.cleanup())

    def refresh(self) -> None:
        """See CloudProvider."""
        self._run(self._provider.refresh())

    def close(self) -> None:
        """Closes the connection and ends the thread; calls of other threads end with an error. Idempotent."""
        self._thread.close(self._provider.close)

    def __enter__(self) -> Self:
        """The provider itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connection and ends the thread."""
        self.close()
