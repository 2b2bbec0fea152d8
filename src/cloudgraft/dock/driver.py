"""Presents a driver that dialled in as a cloud of the engine.

While the driver is away every call fails with UnavailableError: nothing was done, groups go on answering from the
journal, and what is waiting is tried again until its time is up (laws 5 to 7). A call that was under way when the
connection ended has an unknown outcome (law 3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.client import Address, CloudConfig
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.hub import Hub
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.protocol.texts import TextClasses, check_texts
from cloudgraft.dock.slot import HubSlot, RemoteSlot
from cloudgraft.sdk.driver import (
    Driver,
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    Ownership,
    Price,
    ProviderIdBy,
    Shape,
    check_provider_id,
)
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, UnavailableError
from cloudgraft.sdk.flaws import Flaws

log = logging.getLogger("cloudgraft.dock")

_MOST_LOGGED: Final = 20  # texts
_USUAL: Final = timedelta(seconds=110)  # for a create or delete: the engine waits for 120
# Assumed before a driver has ever connected: the traits with which the engine creates and deletes least.
_UNTIL_KNOWN: Final = DriverTraits(ownership=Ownership.NAME, complete_list=False, list_delay=timedelta(days=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class DockOptions:
    """Selects the driver, and describes its cloud for drivers that do not: those of 2018 declare nothing."""

    kind: str  # of the driver, such as AcmeMachineClass
    api_version: str  # such as machine.example/v1
    machine_class: str  # the name of the class that the machines are made of
    address: str = ""  # host:port of a dock that runs elsewhere; empty: the `dock` of this file
    cert_file: Path | None = None  # our certificate for that dock, and with it the key: mTLS
    key_file: Path | None = None
    ca_file: Path | None = None  # the authority that signed the dock's certificate
    server_name: str = ""  # the name in it, if not the host of the address
    token_file: Path | None = None  # sent as a Bearer token
    # For create and delete, slightly below the engine's own timeout. None: 110 s. For a create of a driver that
    # declares how long it may take: that time, less a twelfth.
    create_timeout: timedelta | None = None
    list_timeout: timedelta = timedelta(seconds=55)  # a little less than engine.listTimeout
    ownership: Ownership = Ownership.NAME
    idempotency: Idempotency = Idempotency.NONE
    list_delay: timedelta = timedelta(seconds=30)
    complete_list: bool = True
    max_in_flight: int = 1  # calls at once for a driver that does not declare it: those of 2018 handle one by one
    # By a text of a failed create: the name of the error that it means. For drivers of 2018, whose errors are texts.
    error_texts: Mapping[str, str] = field(default_factory=dict)
    providerID: str = ""  # noqa: N815 - the key in the file is spelt as Kubernetes spells it
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - the same

    def __post_init__(self) -> None:
        """Rejects combinations that can never work."""
        flaws = Flaws()
        named = {"kind": self.kind, "apiVersion": self.api_version, "machineClass": self.machine_class}
        for key, value in named.items():
            is_word = value and value.isprintable() and value.isascii()
            flaws.expect(is_word, key, "must be a plain word, as the driver gives it when it connects")
        self._check_address(flaws)
        flaws.expect_positive(createTimeout=self.create_timeout, listTimeout=self.list_timeout)
        flaws.expect_not_negative(listDelay=self.list_delay)
        flaws.expect_positive(maxInFlight=self.max_in_flight)
        for text, flaw in check_texts(self.error_texts):
            flaws.tell(("errorTexts", text), flaw)
        with flaws.at("providerID"):
            check_provider_id(self.providerID)
        flaws.raise_any()

    def _check_address(self, flaws: Flaws) -> None:
        if self.address:
            are_both = (self.cert_file is None) == (self.key_file is None)
            flaws.expect(are_both, "certFile", "goes together with keyFile: give both, or neither")
            is_signed = self.cert_file is None or self.ca_file is not None
            flaws.expect(is_signed, "caFile", "is missing: who signed the dock's certificate? certFile needs it")
            return
        elsewhere = {
            "certFile": self.cert_file,
            "keyFile": self.key_file,
            "caFile": self.ca_file,
            "serverName": self.server_name,
            "tokenFile": self.token_file,
        }
        for key in (key for key, value in elsewhere.items() if value):
            flaws.tell(key, "is for a dock elsewhere: give its address, or leave this out")

    @property
    def key(self) -> Key:
        """The key that the driver registers under."""
        return Key(kind=self.kind, api_version=self.api_version)

    def remote(self) -> CloudConfig:
        """The address of a remote dock, and the certificates for it. Only with an address."""
        return CloudConfig(
            address=Address.parse(self.address),
            cert=str(self.cert_file or ""),
            key=str(self.key_file or ""),
            cacert=str(self.ca_file or ""),
            tls=self.ca_file is not None,
            server_name=self.server_name,
        )

    def traits(self) -> DriverTraits:
        """The cloud's traits from the file, as a driver would declare them."""
        return DriverTraits(
            ownership=self.ownership,
            idempotency=self.idempotency,
            list_delay=self.list_delay,
            complete_list=self.complete_list,
            provider_id=self.providerID,
            provider_id_by=self.providerIDBy,
            max_calls=self.max_in_flight,
        )


class DockDriver(Driver):
    """A driver that dials in: a program anywhere that has connected to the dock.

    It declares its traits in the hello of each connection; for one that declares nothing, the options apply. Until one
    has ever connected, :attr:`traits` are such that no machine counts as gone.
    """

    Options = DockOptions

    def __init__(self, options: DockOptions, hub: Hub | None = None, classes: MachineClasses | None = None) -> None:
        """``hub`` and ``classes`` are those of this process. Without them and without an address, every call fails."""
        self.traits = _UNTIL_KNOWN
        self._options = options
        self._is_known = False
        self._slot: HubSlot | RemoteSlot | None = None
        self._texts = TextClasses(options.error_texts)
        self._logged: set[str] = set()  # error texts without a class
        if options.address:
            self._slot = RemoteSlot(
                options.key,
                options.machine_class,
                options.remote(),
                options.token_file,
                max_in_flight=options.max_in_flight,
            )
        elif hub is not None:
            self._slot = HubSlot(hub, classes, options.key, options.machine_class, max_in_flight=options.max_in_flight)

    @property
    def key(self) -> Key:
        """The key that the driver registers under."""
        return self._options.key

    async def start(self) -> None:
        """Opens the slot. If the driver is away now, its traits are read before each call."""
        if self._slot is not None:
            await self._slot.open()
        try:
            await self._ready()
        except (UnavailableError, DeadlineError) as error:
            log.info("no driver yet: %s", error.message, extra={"kind": self._options.kind})

    async def close(self) -> None:
        """Closes the connection to a dock elsewhere."""
        if self._slot is not None:
            await self._slot.close()

    async def create(self, spec: MachineSpec) -> Machine:
        """Creates one machine of the class."""
        slot = await self._ready()
        declared = self.traits.create_timeout
        usual = declared * 11 / 12 if declared else _USUAL
        try:
            return await slot.create(spec, self._options.create_timeout or usual)
        except CloudgraftError as error:
            if not error.is_final:
                raise
            raise self._classified(error) from error

    async def delete(self, machine: Machine) -> None:
        """Raises NotFoundError when the driver says that the machine is gone."""
        slot = await self._ready()
        await slot.delete(machine, self._options.create_timeout or _USUAL)

    async def list(self) -> Sequence[Machine]:
        """Lists all machines that the driver has of the class."""
        slot = await self._ready()
        return await slot.list(self._options.list_timeout)

    async def shapes(self) -> Sequence[Shape]:
        """The driver's shapes; else the one of the machine class's node template."""
        slot = await self._ready()
        return await slot.shapes(self._options.list_timeout)

    async def prices(self) -> Sequence[Price]:
        """The driver's prices."""
        slot = await self._ready()
        return await slot.prices(self._options.list_timeout)

    def _classified(self, error: CloudgraftError) -> CloudgraftError:
        """Applies `errorTexts` to a text that came without a code; logs one that has no class anywhere."""
        own = self._texts.own(error.message)
        if own is not None:
            return own(error.message, retry_after=error.retry_after).as_final()
        if isinstance(error, InternalError) and len(self._logged) < _MOST_LOGGED and error.message not in self._logged:
            self._logged.add(error.message)
            log.warning(
                "a driver of 2018 reports an error that is in no table, so the autoscaler gets `internal`, class 99: "
                "%s. If it is about quota or stock, say so in `errorTexts` of its cloud",
                error.message,
                extra={"kind": self._options.kind},
            )
        return error

    async def _ready(self) -> HubSlot | RemoteSlot:
        """Returns the slot after refreshing the traits: another driver may have taken over the key."""
        if self._slot is None:
            raise UnavailableError(
                "there is no dock in this process: add a `dock` section and start it again, or give the address of one "
                "elsewhere"
            )
        traits = await self._slot.describe() or self._options.traits()
        if self._is_known and traits != self.traits:
            log.warning("the traits of a driver have changed: %s", traits, extra={"driver": self._slot.name})
        self.traits, self._is_known = traits, True
        return self._slot
