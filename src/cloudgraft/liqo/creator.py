"""Creates a machine: choose, reserve, peer, request, confirm; and tries the next cluster when one fails.

It can be interrupted anywhere. A repeated call with the same name finds the slice, in any namespace, or else the
reservation for the name, and continues with that cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cloudgraft.discovery.model import Cluster, Market, Need, Resources
from cloudgraft.kube.objects import Manifest
from cloudgraft.liqo import manifests
from cloudgraft.liqo.options import LiqoOptions, MachineSettings
from cloudgraft.liqo.peering.peering import Peering
from cloudgraft.liqo.placement import Candidate, ClusterError, CoolDowns, candidates, need_for, none_left
from cloudgraft.liqo.reservations import MachineReservations
from cloudgraft.liqo.shapes import ShapeName, parse_shape, shared_by
from cloudgraft.liqo.slices import Slice, Slices
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    NotFoundError,
    OutOfStockError,
    UnavailableError,
)
from cloudgraft.validation import read_settings

log = logging.getLogger("cloudgraft.liqo")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRequest:
    """A machine to create, with parsed settings."""

    spec: MachineSpec
    settings: MachineSettings
    shape: ShapeName

    @property
    def name(self) -> str:
        """The name of the machine, the slice, and the node."""
        return self.spec.name


@dataclass(kw_only=True)
class Creator:
    """Creates the machines of one consumer."""

    market: Market
    slices: Slices
    peering: Peering
    reservations: MachineReservations
    cool_downs: CoolDowns
    options: LiqoOptions
    everything: Callable[[str], Resources | None]  # returns the total that the autoscaler got for a cluster, if any
    at_work: Counter[str] = field(default_factory=Counter)  # clusters, with the number of creates that use them now

    def request(self, spec: MachineSpec) -> MachineRequest:
        """Parses the request; raises InvalidArgumentError."""
        settings = read_settings(MachineSettings, spec.settings)
        shape = parse_shape(settings.shape, self.options.amounts())
        return MachineRequest(spec=spec, settings=settings, shape=shape)

    async def create(self, spec: MachineSpec) -> Slice:
        """Returns the slice, once it is granted."""
        request = self.request(spec)
        skip: dict[str, str] = {}
        found = await self.slices.find(request.name)
        if found is not None:
            _check_owner(found, request)
            with _after_the_act():
                done = await self._go_on(found, skip)
            if done is not None:
                return done
        return await self._place(request, skip)

    async def _go_on(self, found: Slice, skip: dict[str, str]) -> Slice | None:
        """Continues with a slice of an earlier attempt; None when it was refused, and is gone."""
        if not found.is_deleting:
            try:
                return await self._granted(found)
            except ClusterError as error:
                self._note(found.cluster, error, skip)
        await self._take_back(found)
        return None

    async def _place(self, request: MachineRequest, skip: dict[str, str]) -> Slice:
        """Tries one cluster after the other."""
        chosen, need = await self._choose(request, skip)
        for candidate in chosen:
            try:
                return await self._attempt(request, candidate, need.resources)
            except ClusterError as error:
                self._note(candidate.cluster, error, skip)
        cooling = self.cool_downs.at(_now())
        try:
            others = await self.market.why_not(need)
        except CloudgraftError as error:
            others = {"the others": error.message}
        raise OutOfStockError(none_left(str(request.shape), skip, cooling, others))

    async def _choose(self, request: MachineRequest, skip: Mapping[str, str]) -> tuple[list[Candidate], Need]:
        try:
            known = await self.market.clusters()
            resources = await self._resources(request.shape, known)
            peered = await self.peering.peered()
            need = need_for(resources, request.shape, request.settings, self.options, peered)
            offers = await self.market.search(need)
            held = await self.reservations.held(request.name)
        except (UnavailableError, DeadlineError) as error:  # nothing was changed yet
            raise UnavailableError(f"no remote cluster can be chosen: {error.message}") from error
        cooling = self.cool_downs.at(_now())
        fitting = [one for one in held if one.resources == need.resources]
        chosen = candidates(offers, fitting, known, {**cooling, **skip})
        kept = {one.held.id for one in chosen if one.held is not None}
        for one in held:
            if one.id not in kept:
                await self.market.release(one.id)
        return chosen, need

    async def _resources(self, shape: ShapeName, known: Sequence[Cluster]) -> Resources:
        if not shape.is_all:
            return self.options.amounts()[shape.size]
        reported = self.everything(shape.cluster)
        if reported is not None:
            return reported  # never below the template
        found = next((cluster for cluster in known if cluster.spec.id == shape.cluster), None)
        if found is None:
            raise OutOfStockError(f"discovery does not know a cluster {shape.cluster!r}")
        return shared_by(found, is_used_by_us=shape.cluster in await self.reservations.clusters())

    async def _attempt(self, request: MachineRequest, candidate: Candidate, resources: Resources) -> Slice:
        """Tries one cluster. Raises ClusterError when it failed and nothing of the attempt is left."""
        self.at_work[candidate.cluster] += 1
        try:
            return await self._try(request, candidate, resources)
        finally:
            self.at_work -= Counter([candidate.cluster])

    async def _try(self, request: MachineRequest, candidate: Candidate, resources: Resources) -> Slice:
        """Reserves first, even what is already held, which may expire soon; and again after peering."""
        await self.reservations.reserve(candidate.cluster, resources, request.name)
        try:
            made = await self._ask(request, candidate, resources)
        except (UnavailableError, DeadlineError):
            raise  # not the cluster's failure: the next attempt continues with it
        # no slice was created: a kept reservation would make the next attempt begin with the same failure
        except Exception:
            await self.reservations.forget(request.name)
            raise
        with _after_the_act():
            try:
                return await self._granted(made)
            except ClusterError as error:
                self._cool(made.cluster, error)  # before anything that may fail: the cluster must cool down in any case
                await self._take_back(made)
                # another process had requested it there: this cluster has not failed
                if made.cluster != candidate.cluster:
                    raise ClusterError(error.why, cools=False) from error
                raise

    async def _ask(self, request: MachineRequest, candidate: Candidate, resources: Resources) -> Slice:
        """Peers, and creates the slice."""
        space = await self.peering.ensure(candidate)
        await self.reservations.reserve(candidate.cluster, resources, request.name)
        manifest = manifests.resource_slice(
            request.name,
            candidate.cluster,
            resources,
            request.settings.resource_slice_class or candidate.slice_class,
            tags=request.spec.tags,
            shape=str(request.shape),
        )
        return await self._make(request, candidate.cluster, manifest, space)

    async def _make(self, request: MachineRequest, cluster: str, manifest: Manifest, space: str) -> Slice:
        try:
            made = await self.slices.make(manifest, space)
        except NotFoundError as error:
            self.peering.doubt(cluster)
            raise ClusterError(f"the peering with it was taken away: {error.message}") from error
        _check_owner(made, request)
        return made

    async def _granted(self, one: Slice) -> Slice:
        try:
            granted = await self.slices.answered(one, self.options.timeouts.slice.total_seconds())
        except ClusterError:
            self.peering.doubt(one.cluster)
            raise
        await self.reservations.settle(granted)
        return granted

    async def _take_back(self, one: Slice) -> None:
        """Removes the slice. Only when it is gone may another one of the same name be created."""
        await self.slices.remove(one, self.options.timeouts.removal.total_seconds())
        await self.reservations.forget(one.name)

    def _note(self, cluster: str, error: ClusterError, skip: dict[str, str]) -> None:
        log.warning("cluster %s failed: %s", cluster, error.why)
        skip[cluster] = error.why
        self._cool(cluster, error)

    def _cool(self, cluster: str, error: ClusterError) -> None:
        if error.cools:
            self.cool_downs.cool(cluster, error.why, _now())


def _now() -> float:
    return asyncio.get_running_loop().time()


def _check_owner(found: Slice, request: MachineRequest) -> None:
    """Rejects a slice of that name that is not this machine's: it must not be used (law 4)."""
    if not found.is_ours or dict(found.tags) != dict(request.spec.tags):
        raise AlreadyExistsError(f"there is a ResourceSlice {found.name} in {found.space} that is not of this machine")


@contextmanager
def _after_the_act() -> Iterator[None]:
    """Once a slice may exist, no error may say that nothing was done: a list settles the outcome."""
    try:
        yield
    except (AlreadyExistsError, DeadlineError):
        raise
    except CloudgraftError as error:
        raise DeadlineError(f"a slice may be there already: {error.message}") from error
