"""A small cloud in memory, a good driver for it, and drivers that each make one mistake."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.sdk.driver import (
    Driver,
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    MachineState,
    Ownership,
    Price,
    Shape,
)
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutOfStockError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.sdk.quantity import Quantity

SECRET = "s3cr3t-of-the-zoo"
CLUSTER_ID = "cloudgraft-cluster-id"
TROUBLES: dict[Trouble, CloudgraftError] = {
    Trouble.QUOTA: QuotaExceededError("no more than 0 animals"),
    Trouble.STOCK_OUT: OutOfStockError("no animals left"),
    Trouble.RATE_LIMIT: RateLimitedError("one animal at a time"),
    Trouble.AUTHENTICATION: AuthenticationError("the zoo does not know you"),
    Trouble.AWAY: UnavailableError("the zoo is closed"),
}
AFTER = (Trouble.ERROR_AFTER, Trouble.LOST_ANSWER)  # the animal is there, and the answer is not
SETTINGS = DriverSettings(
    machine={"shape": "small"}, at_once=4, page_size=6, secrets=(SECRET,), late=timedelta(seconds=0.05)
)


@dataclass
class Animal:
    ident: str
    name: str
    tags: dict[str, str]
    born: datetime = field(default_factory=lambda: datetime.now(UTC))
    lists: int = 0  # that could have shown it
    listed_at: float = 0.0  # from when on a late list shows it


class Zoo:
    """The cloud. It outlives its drivers."""

    def __init__(self) -> None:
        self.animals: dict[str, Animal] = {}
        self.trouble: Trouble | None = None
        self.born = 0
        self.most = 0  # at the same time
        self._numbers = itertools.count(1)

    def add(self, name: str, tags: dict[str, str]) -> Animal:
        self.born += 1
        animal = Animal(ident=f"i-{next(self._numbers):04d}", name=name, tags=tags)
        self.animals[animal.ident] = animal
        self.most = max(self.most, len(self.animals))
        return animal

    def named(self, name: str) -> Animal | None:
        return next((animal for animal in self.animals.values() if animal.name == name), None)


@dataclass(frozen=True)
class ZooOptions:
    token: str = field(default=SECRET, repr=False)


class GoodDriver(Driver):
    """Does what it should. Between two steps the event loop gets a turn, as with every real cloud."""

    Options: type = ZooOptions
    traits = DriverTraits(ownership=Ownership.TAGS, idempotency=Idempotency.TOKEN)

    def __init__(self, zoo: Zoo, trouble: Trouble | None = None) -> None:
        self.zoo = zoo
        self.trouble = trouble
        self.options = self.Options()

    async def create(self, spec: MachineSpec) -> Machine:
        self.refuse(spec)
        await asyncio.sleep(0)
        self.meet_trouble()
        animal = self.make(spec)
        await asyncio.sleep(0)
        if self.trouble in AFTER:
            return self.without_answer(spec)
        return self.shown(animal)

    async def delete(self, machine: Machine) -> None:
        await asyncio.sleep(0)
        self.meet_trouble()
        self.zoo.animals.pop(machine.machine_id, None)

    async def list(self) -> Sequence[Machine]:
        await asyncio.sleep(0)
        self.meet_trouble()
        return [self.shown(animal) for animal in self.zoo.animals.values()]

    async def shapes(self) -> Sequence[Shape]:
        return [Shape(name="small", capacity={"cpu": Quantity(2), "memory": Quantity("4Gi")})]

    async def prices(self) -> Sequence[Price]:
        return [Price(shape="small", hourly=Decimal("0.02"), currency="EUR")]

    # -- what the faulty ones change -----------------------------------------------------------------------------------

    def refuse(self, spec: MachineSpec) -> None:
        if spec.settings.get("shape") != "small":
            raise InvalidArgumentError("there are only small animals")

    def meet_trouble(self) -> None:
        if self.trouble in TROUBLES:
            raise TROUBLES[self.trouble]

    def without_answer(self, spec: MachineSpec) -> Machine:
        raise DeadlineError("whether the zoo has the animal is not known")

    def make(self, spec: MachineSpec) -> Animal:
        return self.zoo.named(spec.name) or self.zoo.add(spec.name, dict(spec.tags))

    def shown(self, animal: Animal) -> Machine:
        return Machine(
            name=animal.name,
            machine_id=animal.ident,
            provider_id=f"zoo://{animal.name}",
            tags=dict(animal.tags),
            created_at=animal.born,
        )


# -- answers -----------------------------------------------------------------------------------------------------------


class ChangingTraits(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        self.traits = DriverTraits(idempotency=Idempotency.NONE)
        return await super().list()


class NotAList(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        return {animal.name: self.shown(animal) for animal in self.zoo.animals.values()}  # type: ignore[return-value]


class OtherName(GoodDriver):
    def shown(self, animal: Animal) -> Machine:
        return replace(super().shown(animal), name=animal.name.upper())


class CutName(GoodDriver):
    def make(self, spec: MachineSpec) -> Animal:
        return self.zoo.add(spec.name[:40], dict(spec.tags))


class NoId(GoodDriver):
    async def create(self, spec: MachineSpec) -> Machine:
        return replace(await super().create(spec), machine_id="")


class StateAsText(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        return [replace(machine, state="ACTIVE") for machine in await super().list()]  # type: ignore[arg-type]


class SameMachineTwice(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        return [*await super().list()] * 2


class LateList(GoodDriver):
    """Its list is late, and it does not say so."""

    async def list(self) -> Sequence[Machine]:
        for animal in self.zoo.animals.values():
            animal.lists += 1
        return [self.shown(animal) for animal in self.zoo.animals.values() if animal.lists > 2]


class PositionAsId(GoodDriver):
    def shown(self, animal: Animal) -> Machine:
        return replace(super().shown(animal), machine_id=str(list(self.zoo.animals).index(animal.ident)))

    async def delete(self, machine: Machine) -> None:
        idents = dict(enumerate(self.zoo.animals))
        self.zoo.animals.pop(idents.get(int(machine.machine_id) if machine.machine_id.isdigit() else -1, ""), None)


class OtherIdInList(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        return [replace(machine, machine_id=f"vm/{machine.machine_id}") for machine in await super().list()]

    async def delete(self, machine: Machine) -> None:
        await super().delete(replace(machine, machine_id=machine.machine_id.removeprefix("vm/")))


class ProviderIdChanges(GoodDriver):
    async def create(self, spec: MachineSpec) -> Machine:
        machine = await super().create(spec)
        return replace(machine, provider_id=f"zoo:///{machine.machine_id}")


class ProviderIdIsShared(GoodDriver):
    def shown(self, animal: Animal) -> Machine:
        return replace(super().shown(animal), provider_id="zoo://animal")


class ProviderIdNotAsDeclared(GoodDriver):
    traits = replace(GoodDriver.traits, provider_id="zoo:///{name}")


class RunsWithoutProviderId(GoodDriver):
    def shown(self, animal: Animal) -> Machine:
        return replace(super().shown(animal), provider_id=None)


class StaysPending(GoodDriver):
    def shown(self, animal: Animal) -> Machine:
        return replace(super().shown(animal), state=MachineState.PENDING)


class NoTimeZone(GoodDriver):
    def shown(self, animal: Animal) -> Machine:
        return replace(super().shown(animal), created_at=animal.born.replace(tzinfo=None))


class BornIn1970(GoodDriver):
    def shown(self, animal: Animal) -> Machine:
        return replace(super().shown(animal), created_at=datetime.fromtimestamp(animal.born.second, UTC))


# -- ownership ---------------------------------------------------------------------------------------------------------


class ForgetsTags(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        return [replace(machine, tags={}) for machine in await super().list()]


class CutsTags(GoodDriver):
    def make(self, spec: MachineSpec) -> Animal:
        return self.zoo.named(spec.name) or self.zoo.add(spec.name, {k: v[:32] for k, v in spec.tags.items()})


class LowersTags(GoodDriver):
    def make(self, spec: MachineSpec) -> Animal:
        return self.zoo.named(spec.name) or self.zoo.add(spec.name, {k: v.lower() for k, v in spec.tags.items()})


class FillsInTags(GoodDriver):
    """Shows every machine as that of the cluster that it works for."""

    cluster_id = ""

    def make(self, spec: MachineSpec) -> Animal:
        type(self).cluster_id = type(self).cluster_id or spec.tags[CLUSTER_ID]
        return super().make(spec)

    def shown(self, animal: Animal) -> Machine:
        machine = super().shown(animal)
        is_first = self.cluster_id in animal.name
        return replace(machine, tags={**machine.tags, CLUSTER_ID: self.cluster_id}) if is_first else machine


# -- deletion ----------------------------------------------------------------------------------------------------------


class DeletesNothing(GoodDriver):
    async def delete(self, machine: Machine) -> None:
        await asyncio.sleep(0)


class NeedsItsOwnMachines(GoodDriver):
    """Deletes only objects that it made itself; after a restart there are none."""

    async def delete(self, machine: Machine) -> None:
        if machine.created_at is None:
            raise KeyError(machine.name)
        await super().delete(machine)


class DeletesByPrefix(GoodDriver):
    async def delete(self, machine: Machine) -> None:
        for animal in list(self.zoo.animals.values()):
            if animal.name.startswith(machine.name[:30]):
                del self.zoo.animals[animal.ident]


class DeletesTheTwin(GoodDriver):
    traits = DriverTraits(idempotency=Idempotency.NONE)

    def make(self, spec: MachineSpec) -> Animal:
        return self.zoo.add(spec.name, dict(spec.tags))

    async def delete(self, machine: Machine) -> None:
        for animal in list(self.zoo.animals.values()):
            if animal.name == machine.name:
                del self.zoo.animals[animal.ident]


class RefusesToDeleteTwice(GoodDriver):
    async def delete(self, machine: Machine) -> None:
        if machine.machine_id not in self.zoo.animals:
            raise PreconditionError("there is no such animal")
        await super().delete(machine)


# -- one machine per name ----------------------------------------------------------------------------------------------


class Doubles(GoodDriver):
    def make(self, spec: MachineSpec) -> Animal:
        return self.zoo.add(spec.name, dict(spec.tags))


class RefusesAgain(GoodDriver):
    def make(self, spec: MachineSpec) -> Animal:
        if self.zoo.named(spec.name):
            raise AlreadyExistsError("that name is taken")
        return super().make(spec)


class LooksFirst(GoodDriver):
    """Looks whether it is there, and then makes it."""

    async def create(self, spec: MachineSpec) -> Machine:
        self.refuse(spec)
        self.meet_trouble()
        animal = self.zoo.named(spec.name)
        await asyncio.sleep(0.01)
        return self.shown(animal or self.zoo.add(spec.name, dict(spec.tags)))


class RemembersTokens(GoodDriver):
    """Knows only by itself which names it has made."""

    def __init__(self, zoo: Zoo, trouble: Trouble | None = None) -> None:
        super().__init__(zoo, trouble)
        self.known: dict[str, Animal] = {}

    def make(self, spec: MachineSpec) -> Animal:
        if spec.name not in self.known:
            self.known[spec.name] = self.zoo.add(spec.name, dict(spec.tags))
        return self.known[spec.name]


class KeepsMachinesToItself(GoodDriver):
    def __init__(self, zoo: Zoo, trouble: Trouble | None = None) -> None:
        super().__init__(Zoo(), trouble)


class MixesUp(GoodDriver):
    """Builds its requests in one place for all."""

    async def create(self, spec: MachineSpec) -> Machine:
        self.refuse(spec)
        self.meet_trouble()
        self.request = spec
        await asyncio.sleep(0.001)
        return self.shown(self.make(self.request))


class BreaksMeanwhile(GoodDriver):
    """Cannot read its list while a machine is half made."""

    half_made = 0

    async def create(self, spec: MachineSpec) -> Machine:
        self.half_made += 1
        try:
            return await super().create(spec)
        finally:
            self.half_made -= 1

    async def list(self) -> Sequence[Machine]:
        if self.half_made:
            raise InternalError("unexpected end of file")
        return await super().list()


class ComesBack(GoodDriver):
    """Writes the machine down once more when it is ready, whatever happened meanwhile."""

    async def create(self, spec: MachineSpec) -> Machine:
        machine = await super().create(spec)
        animal = self.zoo.animals[machine.machine_id]
        for _ in range(50):  # turns of the event loop, in which others get something done
            await asyncio.sleep(0)
        self.zoo.animals[machine.machine_id] = animal
        return machine


class FirstPageOnly(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        return [*await super().list()][:6]


# -- calls that are given up -------------------------------------------------------------------------------------------


class IgnoresCancellation(GoodDriver):
    async def create(self, spec: MachineSpec) -> Machine:
        try:
            return await super().create(spec)
        except asyncio.CancelledError:
            await asyncio.sleep(60)
            raise


class DeniesWhatItDid(GoodDriver):
    async def create(self, spec: MachineSpec) -> Machine:
        try:
            machine = await super().create(spec)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise UnavailableError("the zoo did not answer") from None
        return machine


class KeepsItsLock(GoodDriver):
    def __init__(self, zoo: Zoo, trouble: Trouble | None = None) -> None:
        super().__init__(zoo, trouble)
        self.lock = asyncio.Lock()

    async def create(self, spec: MachineSpec) -> Machine:
        self.refuse(spec)
        self.meet_trouble()
        await self.lock.acquire()
        await asyncio.sleep(0.005)
        machine = self.shown(self.make(spec))
        self.lock.release()
        return machine


class MarksLater(GoodDriver):
    """Makes the machine with one call and marks it with the next."""

    async def create(self, spec: MachineSpec) -> Machine:
        self.refuse(spec)
        self.meet_trouble()
        animal = self.zoo.named(spec.name) or self.zoo.add(spec.name, {})
        await asyncio.sleep(0.005)
        animal.tags.update(spec.tags)
        return self.shown(animal)


class Blocks(GoodDriver):
    """Blocks in its third create."""

    created = 0

    def make(self, spec: MachineSpec) -> Animal:
        self.created += 1
        if self.created == 3:
            time.sleep(3)
        return super().make(spec)


# -- errors ------------------------------------------------------------------------------------------------------------


class TripsOverTheShape(GoodDriver):
    def refuse(self, spec: MachineSpec) -> None:
        {"small": 1}[str(spec.settings["shape"])]


class MakesItAnyway(GoodDriver):
    async def create(self, spec: MachineSpec) -> Machine:
        if spec.settings.get("shape") != "small":
            self.make(spec)
        return await super().create(spec)


class QuotaIsABug(GoodDriver):
    def meet_trouble(self) -> None:
        if self.trouble is Trouble.QUOTA:
            raise InternalError("HTTP 403")
        super().meet_trouble()


class RateLimitIsAQuota(GoodDriver):
    def meet_trouble(self) -> None:
        if self.trouble is Trouble.RATE_LIMIT:
            raise QuotaExceededError("HTTP 429")
        super().meet_trouble()


class ServerErrorIsUnavailable(GoodDriver):
    """Follows the status code: a 503 says that the zoo is not available."""

    def without_answer(self, spec: MachineSpec) -> Machine:
        if self.trouble is Trouble.ERROR_AFTER:
            raise UnavailableError("HTTP 503")
        return super().without_answer(spec)


class LostAnswerIsUnavailable(GoodDriver):
    def without_answer(self, spec: MachineSpec) -> Machine:
        if self.trouble is Trouble.LOST_ANSWER:
            raise UnavailableError("the zoo closed the connection")
        return super().without_answer(spec)


class RepeatsALostCreate(GoodDriver):
    """Sends the request again by itself, and the zoo knows no tokens."""

    def without_answer(self, spec: MachineSpec) -> Machine:
        return self.shown(self.zoo.add(spec.name, dict(spec.tags)))


class DeniesOnce(GoodDriver):
    """Its third animal is there although the error says that nothing was done; no fake of the author shows it."""

    async def create(self, spec: MachineSpec) -> Machine:
        machine = await super().create(spec)
        if self.zoo.born == 3:
            raise UnavailableError("HTTP 503")
        return machine


class EmptyWhenAway(GoodDriver):
    async def list(self) -> Sequence[Machine]:
        try:
            return await super().list()
        except UnavailableError:
            return []


class SecretInError(GoodDriver):
    def meet_trouble(self) -> None:
        if self.trouble is Trouble.AUTHENTICATION:
            raise AuthenticationError(f"the token {self.options.token} is not known")
        super().meet_trouble()


@dataclass(frozen=True)
class OpenOptions:
    token: str = SECRET


class SecretInRepr(GoodDriver):
    Options = OpenOptions


class ShowsUserData(GoodDriver):
    def refuse(self, spec: MachineSpec) -> None:
        if spec.settings.get("shape") != "small":
            raise InvalidArgumentError(f"cannot make {spec.settings} with {spec.user_data}")


# -- offers and life ---------------------------------------------------------------------------------------------------


class ShapesTwice(GoodDriver):
    async def shapes(self) -> Sequence[Shape]:
        return [*await super().shapes()] * 2


class ShapesAsText(GoodDriver):
    async def shapes(self) -> Sequence[Shape]:
        return [Shape(name="small", capacity={"cpu": "2", "memory": "4Gi"})]  # type: ignore[dict-item]


class PricesAsFloats(GoodDriver):
    async def prices(self) -> Sequence[Price]:
        return [Price(shape="small", hourly=0.02, currency="EUR")]  # type: ignore[arg-type]


class TwoCurrencies(GoodDriver):
    async def prices(self) -> Sequence[Price]:
        return [*await super().prices(), Price(shape="large", hourly=Decimal(1), currency="USD")]


class ClosesOnce(GoodDriver):
    is_closed = False

    async def close(self) -> None:
        if self.is_closed:
            raise PreconditionError("it is closed already")
        self.is_closed = True


class WaitsForItsCalls(GoodDriver):
    """Waits in close for calls that wait for it."""

    running = 0

    async def list(self) -> Sequence[Machine]:
        self.running += 1
        try:
            return await super().list()
        finally:
            self.running -= 1

    async def close(self) -> None:
        if self.running:
            await asyncio.sleep(60)


# Those who never come to an end are not waited for as long as others.
_BOOT = {"boot_time": timedelta(seconds=1)}
_CALLS = {"call_timeout": timedelta(seconds=4)}
_IMPATIENT: dict[type[GoodDriver], dict[str, timedelta]] = {
    RunsWithoutProviderId: _BOOT,
    StaysPending: _BOOT,
    IgnoresCancellation: _CALLS,
    KeepsItsLock: {"call_timeout": timedelta(seconds=2)},
    WaitsForItsCalls: _CALLS,
    DeletesNothing: {"patience": timedelta(seconds=1)},
}


def settings_for(kind: type[GoodDriver], cloud: Zoo) -> DriverSettings:
    """With drivers of this kind that meet every trouble."""
    times = _IMPATIENT.get(kind, {})
    return replace(SETTINGS, troubled=lambda trouble: kind(cloud, trouble), **times)  # type: ignore[arg-type]
