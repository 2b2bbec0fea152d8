"""Operators' orders by hand, as `cloudgraft scale` gives them: repeated under one id until an answer comes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cloudgraft.engine.operations.scaling import ScaleOrder, scale
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError
from cloudgraft.store.records import Change, Contents, RequestRecord

if TYPE_CHECKING:
    from tests.simulation.world import World

_CALLER: Final = "cloudgraft scale"  # of the orders' keys in the journal
_AGAIN: Final = 30.0  # seconds until an order without an answer is repeated
_MOST: Final = 40  # repetitions
_JOINED: Final = 120.0  # seconds after which the engine knows that a node is ready


@dataclass(slots=True)
class _Given:
    """An order that waits for its answer."""

    order: ScaleOrder
    key: str
    since: float
    tries: int = 0
    is_over: bool = False


class Orders:
    """Gives orders, and knows what came of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._count = 0
        self._made: dict[str, tuple[str, ...]] = {}  # by key: the machines that the order made or removed
        self._takes_ready: set[str] = set()  # keys of orders that may remove what pods run on

    def give(self, group: str, change: str, *, delete_ready: bool) -> None:
        """An operator orders, and repeats the order until it is answered."""
        self._count += 1
        key, order = f"order-{self._count}", ScaleOrder(group=group, change=change, delete_ready=delete_ready)
        if delete_ready:
            self._takes_ready.add(key)
        self._try(_Given(order, key, self._world.loop.time()))

    def _try(self, given: _Given) -> None:
        if given.is_over or given.tries == _MOST:
            return
        given.tries += 1
        self._world.loop.later(_AGAIN, self._try, given)  # the answer of a process that is killed never comes
        server = self._world.server
        if not server.is_serving or server.engine is None or server.host is None:
            return
        work = scale(server.engine, given.order, given.key)
        task = server.host.spawn(work, "scale")
        task.add_done_callback(lambda task: self._answered(given, task))

    def _answered(self, given: _Given, task: asyncio.Task[Mapping[str, Any]]) -> None:
        if task.cancelled() or given.is_over:
            return
        error = task.exception()
        if isinstance(error, UnavailableError | DeadlineError):
            return  # it is repeated
        given.is_over = True
        who = f"{given.key}: {given.order.group} {given.order.change}"
        if error is not None and not isinstance(error, CloudgraftError):
            self._world.judge.fail("error", f"{who} ends with {error!r}")
        self._world.trace("operator", f"{who} {'is refused' if error is not None else 'OK'}")
        if self._world.judge.destroyed_at >= given.since:
            return  # the journal that had the order may be lost
        made = self._made.get(given.key)
        if error is not None and made:
            self._world.judge.fail("order-made-once", f"{who} is refused, and was made: {', '.join(made)}")
        elif error is None and made != _names(task.result()):
            self._world.judge.fail("answer-without-change", f"{who} is OK, and the journal has {made}")

    # -- what happens --------------------------------------------------------------------------------------------------

    def on_commit(self, change: Change) -> None:
        """An order is made, or taken back because its operator was told that it failed."""
        for _, key in change.removed_requests:
            self._made.pop(key, None)
        for request in change.requests:
            before = self._made.get(request.key)
            self._note(request)
            if before not in (None, self._made.get(request.key)):
                self._world.judge.fail("order-made-once", f"{request.key} was made with {before}, and is made again")
            self._check_removed(request)

    def on_loaded(self, contents: Contents, *, is_destroyed: bool) -> None:
        """What a process had written when it was killed is known only now.

        ``is_destroyed``: the journal may lack what was acknowledged, so that an order may be made again.
        """
        if is_destroyed:
            self._made.clear()
        for request in contents.requests:
            self._note(request)

    def _note(self, request: RequestRecord) -> None:
        if request.caller != _CALLER:
            return
        self._made[request.key] = _names(request.answer)
        if request.answer["removed"]:
            self._world.judge.on_ordered(self._made[request.key])

    def _check_removed(self, request: RequestRecord) -> None:
        """Without --delete-ready, nothing is removed that pods may run on."""
        if request.caller != _CALLER or not request.answer["removed"]:
            return
        if request.key in self._takes_ready:
            return
        names, now = set(self._made[request.key]), self._world.loop.time()
        for cloud in self._world.clouds.values():
            for machine in cloud.alive():
                is_old = machine.joined_at is not None and machine.joined_at < now - _JOINED
                is_used = machine.intent in names and is_old and self._world.kubernetes.has_ready_node(machine)
                if is_used and self._world.is_calm(cloud.name):
                    self._world.judge.fail("removed-in-use", f"{request.key} removes {machine.name}, which is ready")


def _names(answer: Mapping[str, Any]) -> tuple[str, ...]:
    machines: Sequence[Mapping[str, str]] = answer["machines"]
    return tuple(machine["name"] for machine in machines)
