"""Merges several providers into one: each has its own groups, and a failure of one does not affect others (law 6)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from cloudgraft.sdk.common.event_loop import contained, within
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError, UnavailableError, UnsupportedError
from cloudgraft.sdk.provider import Provider, Question, ReadyReplies
from cloudgraft.sdk.template_nodes import group_of_template
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod
from cloudgraft.service import checks

log = logging.getLogger("cloudgraft.merge")

T = TypeVar("T")
_CLAIMS_REMEMBERED = 50_000


@dataclass(slots=True)
class _Member:
    name: str
    provider: Provider
    groups: Sequence[NodeGroup] = field(default_factory=list)  # as it last listed them
    troubles: dict[str, str] = field(default_factory=dict)  # kind of call -> the latest error


class MergedProvider(Provider):
    """Routes each call to the provider of its group.

    Group ids must be unique over all providers: of two groups with one id the first provider's is used, and the other
    is left out and reported. A provider that fails keeps its last list of groups; one that never listed is left out.
    """

    def __init__(
        self,
        members: Mapping[str, Provider],
        *,
        required: Collection[str] = (),
        member_timeout: float = 2.0,
        refresh_timeout: float = 4.0,
    ) -> None:
        """``members`` by name, in order of precedence; none may delay the others for longer than the timeouts.

        If a ``required`` provider cannot start, neither does the merged one.
        """
        self._required = frozenset(required)
        self._members = [_Member(name, provider) for name, provider in members.items()]
        self._timeout = member_timeout
        self._refresh_timeout = refresh_timeout
        self._claims: OrderedDict[tuple[str, str], _Member] = OrderedDict()
        self._left_out: list[_Member] = []
        self._routes: dict[str, _Member] = {}
        self._clashes: set[tuple[str, str]] = set()

    # -- calls to all providers --------------------------------------------------------------------------------------

    async def node_groups(self) -> Sequence[NodeGroup]:
        """The groups of all providers, in the providers' order."""
        await self._ask_all("node_groups", self._list_member)
        merged: dict[str, NodeGroup] = {}
        routes: dict[str, _Member] = {}
        for member in self._members:
            for group in member.groups:
                if group.id in routes:
                    self._report_clash(group.id, routes[group.id], member)
                else:
                    routes[group.id], merged[group.id] = member, group
        self._routes = routes
        return list(merged.values())

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """The group of the provider that claims the node: the one that did so last time, else the first that does."""
        key = (node.name, node.provider_id)
        claimed = self._claims.get(key)
        members = [claimed, *(m for m in self._members if m is not claimed)] if claimed else self._members
        failure: CloudgraftError | None = None
        for member in members:
            try:
                group = await self._limited(member, member.provider.node_group_for_node(node))
            except CloudgraftError as error:
                # A provider without a listed group cannot own the node (R18); with one, "not managed" may be
                # wrong (R24).
                failure = failure or (error if member.groups else None)
                continue
            if group is not None and self._routes.get(group.id, member) is member:
                self._remember_claim(key, member)
                return group
        if failure is not None:
            raise failure
        return None

    async def gpu_label(self) -> str:
        """The first GPU label of any provider."""
        labels = await self._ask_all("gpu_label", lambda member: member.provider.gpu_label())
        return next((label for label in labels if label), "")

    async def gpu_types(self) -> Collection[str]:
        """The types of all providers."""
        types = await self._ask_all("gpu_types", lambda member: member.provider.gpu_types())
        return frozenset[str]().union(*types)

    async def refresh(self) -> None:
        """Refreshes all providers; fails only when all of them do.

        A provider may take longer for this than for a read (R1), up to the autoscaler's own timeout.
        """
        await self._ask_all(
            "refresh", lambda member: member.provider.refresh(), must=True, seconds=self._refresh_timeout
        )

    async def cleanup(self) -> None:
        """Calls cleanup of all providers, ignoring errors."""
        await self._ask_all("cleanup", lambda member: member.provider.cleanup())

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """From the provider of the node's, or the template's, group."""
        member = self._owner_of_template(node.name)
        if member is not None:
            return await member.provider.node_price(node, start, end)
        group = await self.node_group_for_node(node)
        if group is None:
            raise NotFoundError(f"node {checks.shown(node.name)} belongs to no group: it has no price")
        return await (await self._route(group.id)).provider.node_price(node, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """The lowest price of any provider."""
        prices = await self._ask_all("pod_price", lambda member: member.provider.pod_price(pod, start, end))
        if not prices:
            raise UnsupportedError("no provider knows a price for the pod")
        return min(prices)

    # -- calls to one provider ---------------------------------------------------------------------------------------

    async def target_size(self, group: str) -> int:
        """From the group's provider."""
        return await (await self._route(group)).provider.target_size(group)

    async def instances(self, group: str) -> Sequence[Instance]:
        """From the group's provider."""
        return await (await self._route(group)).provider.instances(group)

    async def template(self, group: str) -> NodeTemplate:
        """From the group's provider."""
        return await (await self._route(group)).provider.template(group)

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """From the group's provider.

        A provider without options answers None here, not "unsupported": the others may have some, and for the
        autoscaler both mean its defaults.
        """
        try:
            return await (await self._route(group)).provider.options(group, defaults)
        except UnsupportedError:
            return None

    async def increase_size(self, group: str, delta: int) -> None:
        """By the group's provider."""
        await (await self._route(group)).provider.increase_size(group, delta)

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """By the group's provider."""
        await (await self._route(group)).provider.delete_nodes(group, nodes)

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """By the group's provider."""
        await (await self._route(group)).provider.decrease_target_size(group, delta)

    # -- ready replies -----------------------------------------------------------------------------------------------

    def dependencies(self, question: Question) -> Collection[str] | None:
        """The subjects of all providers' answers, and those of the lists of groups, which route the calls.

        None if one provider has no subjects, or has failed: its next answer changes the merged one.
        """
        if any(member.troubles for member in self._members):
            return None
        subjects: set[str] = set()
        for member in self._members:
            groups = member.provider.dependencies(Question("node_groups"))
            own = member.provider.dependencies(question) if self._is_asked(member, question) else ()
            if groups is None or own is None:
                return None
            subjects.update(groups, own)
        return subjects

    def _is_asked(self, member: _Member, question: Question) -> bool:
        return not question.group or self._routes.get(question.group) is member

    def follow(self, replies: ReadyReplies) -> None:
        """Makes all providers publish their changes."""
        for member in self._members:
            member.provider.follow(replies)

    def replies_valid_until(self) -> float:
        """The earliest time of all providers."""
        return min((member.provider.replies_valid_until() for member in self._members), default=0.0)

    # -- life cycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts all providers concurrently. One that cannot start is left out, unless none can."""
        starts = (contained(member.provider.start()) for member in self._members)
        results = await asyncio.gather(*starts, return_exceptions=True)
        failed = [
            (member, result)
            for member, result in zip(self._members, results, strict=True)
            if isinstance(result, BaseException)
        ]
        for member, error in failed:
            log.error("a provider cannot start and is left out", extra={"provider": member.name, "error": str(error)})
        for member, error in failed:
            if len(failed) == len(self._members) or member.name in self._required:
                raise error
        self._left_out = [member for member, _ in failed]
        self._members = [member for member in self._members if member not in self._left_out]

    async def close(self) -> None:
        """Closes all providers, including those that could not start."""
        members = [*self._members, *self._left_out]
        closes = (contained(member.provider.close()) for member in members)
        results = await asyncio.gather(*closes, return_exceptions=True)
        for member, error in zip(members, results, strict=True):
            if isinstance(error, BaseException):
                log.warning("a provider failed to close", extra={"provider": member.name, "error": str(error)})

    # -- helpers -----------------------------------------------------------------------------------------------------

    async def _list_member(self, member: _Member) -> None:
        member.groups = checks.check_groups_answer(await member.provider.node_groups())

    async def _ask_all(
        self, what: str, ask: Callable[[_Member], Awaitable[T]], *, must: bool = False, seconds: float | None = None
    ) -> list[T]:
        """The answers of all providers that answer; with ``must``, at least one has to."""
        calls = (self._limited(member, ask(member), seconds) for member in self._members)
        results = await asyncio.gather(*calls, return_exceptions=True)
        answers: list[T] = []
        failures: list[BaseException] = []
        for member, result in zip(self._members, results, strict=True):
            if isinstance(result, BaseException):
                failures.append(result)
                self._note_trouble(member, what, result)
            else:
                answers.append(result)
                self._note_trouble(member, what, None)
        if must and not answers and failures:
            raise failures[0]
        return answers

    async def _limited(self, member: _Member, call: Awaitable[T], seconds: float | None = None) -> T:
        """The call's result, or a CloudgraftError, within the time that a provider may delay the others."""
        seconds = self._timeout if seconds is None else seconds

        def failed(error: Exception) -> CloudgraftError:
            log.error("a provider raised an unexpected exception", exc_info=error, extra={"provider": member.name})
            return UnavailableError(f"provider {member.name} failed; the server's log has the details")

        late = f"provider {member.name} did not answer in {seconds:g} s"
        return await within(seconds, lambda: call, late=lambda: UnavailableError(late), failed=failed)

    def _remember_claim(self, key: tuple[str, str], member: _Member) -> None:
        self._claims[key] = member
        self._claims.move_to_end(key)
        if len(self._claims) > _CLAIMS_REMEMBERED:
            self._claims.popitem(last=False)

    async def _route(self, group: str) -> _Member:
        if group not in self._routes:
            await self.node_groups()
        try:
            return self._routes[group]
        except KeyError:
            raise NotFoundError(f"there is no node group {checks.shown(group)}") from None

    def _owner_of_template(self, name: str) -> _Member | None:
        """R81: a template's name contains its group's id."""
        group = group_of_template(name, self._routes)
        return self._routes[group] if group is not None else None

    def _note_trouble(self, member: _Member, what: str, error: BaseException | None) -> None:
        """Logs changes of a provider's error, for each kind of call; "unsupported" is no error."""
        about = {"provider": member.name, "call": what}
        if error is None or isinstance(error, UnsupportedError):
            if member.troubles.pop(what, None) is not None:
                log.info("a provider answers again", extra=about)
        elif member.troubles.get(what) != str(error):
            member.troubles[what] = str(error)
            log.warning("a provider fails; the others continue", extra={**about, "error": str(error)})

    def _report_clash(self, group: str, first: _Member, second: _Member) -> None:
        if (group, second.name) not in self._clashes:
            self._clashes.add((group, second.name))
            log.error(
                "two providers have a group with the same id; the second one's is left out",
                extra={"group": group, "used": first.name, "left_out": second.name},
            )
