"""Calls one controller through sushy. Everything here blocks; the library's untyped objects stay in this module.

By default sushy repeats requests after a broken connection, even actions, and after a server error. So it gets a
session that sends each request once and raises our own errors, which it passes on; its other retries are turned off.
The library itself handles error responses: it knows the differences of vendors.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, TypeVar

import requests
import sushy
from sushy.auth import BasicAuth, SessionAuth
from sushy.connector import Connector
from sushy.exceptions import InvalidParameterValueError, MissingActionError, MissingAttributeError, SushyError

from cloudgraft.drivers.common.error_table import retry_after
from cloudgraft.drivers.common.requests_calls import error_of_request, limit_answers
from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.hosts.driver import PowerState
from cloudgraft.drivers.redfish.errors import error_of
from cloudgraft.drivers.redfish.options import Auth, Boot, MachineSettings, RedfishHost, RedfishOptions
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)

# -- virtual media -----------------------------------------------------------------------------------------------------
# Images that a controller fetches, and shows to its system as drives.

_DISCS: Final = frozenset({"CD", "DVD"})
_STICKS: Final = ("USBStick", "Floppy")  # cloud-init finds the seed by its label on any of them


def eject_all(system: Any, host: str) -> None:
    """Ejects all media, and checks that: the library does not report a refusal."""
    for drive in _drives(system):
        if not drive.inserted:
            continue
        drive.eject_media()
        drive.refresh(force=True)
        if drive.inserted:
            raise ConflictError(f"{host}: its controller does not eject {drive.identity}")


def insert_all(system: Any, image: str, seed: str, host: str) -> None:
    """Inserts the image as a disc, and the seed into another drive, as a disc or a stick."""
    drives = list(_drives(system))
    discs = [drive for drive in drives if _types(drive) & _DISCS]
    sticks = [drive for kind in _STICKS for drive in drives if kind in _types(drive) and drive not in discs]
    places = [*discs, *dict.fromkeys(sticks)]
    wanted = [url for url in (image, seed) if url]
    if not discs or len(places) < len(wanted):
        there = ", ".join(str(drive.identity) for drive in drives) or "none"
        raise UnsupportedError(
            f"{host}: its controller has too few virtual drives for {len(wanted)} images: {there}; see machine.image"
        )
    for drive, url in zip(places, wanted, strict=False):
        drive.insert_media(url)


def _drives(system: Any) -> Iterator[Any]:
    """Yields the drives of the system, or of its managers on older controllers."""
    collection = None
    with suppress(MissingAttributeError):
        collection = system.virtual_media
    collections = [collection] if collection is not None else _of_managers(system)
    for one in collections:
        yield from one.get_members()


def _of_managers(system: Any) -> Sequence[Any]:
    found = []
    with suppress(MissingAttributeError):
        for manager in system.managers:
            with suppress(MissingAttributeError):
                found.append(manager.virtual_media)
    return found


def _types(drive: Any) -> set[str]:
    return {kind.value for kind in drive.media_types or ()}


# -- the controller ----------------------------------------------------------------------------------------------------

T = TypeVar("T")
# It warns of every error response, at every list. All of them are errors of ours, which have the reason.
logging.getLogger("sushy").setLevel(logging.CRITICAL)
_ON: Final = (sushy.ResetType.ON, sushy.ResetType.FORCE_ON)
_FORCED: Final = (sushy.ResetType.FORCE_OFF,)
_GRACEFUL: Final = (sushy.ResetType.GRACEFUL_SHUTDOWN, sushy.ResetType.FORCE_OFF)
_TURNS: Final = 2  # requests that a call waits for at most, while another call uses the same controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A system as its controller reports it."""

    power: PowerState
    cpus: Decimal | None = None  # threads, if the controller reports them
    memory: Decimal | None = None  # GiB


class Bmc:
    """The controller of one host. One call at a time uses it: many controllers cannot do more."""

    def __init__(self, host: RedfishHost, options: RedfishOptions) -> None:
        self._host = host
        self._options = options
        file = host.password_file or options.password_file
        self._password = SecretFile(path=file, option="passwordFile") if file else None
        self._lock = threading.Lock()
        self._made: tuple[str, _Connection] | None = None  # and its password

    def close(self) -> None:
        """Ends its session; does not wait for a call in progress."""
        made, self._made = self._made, None
        if made is not None:
            made[1].close()

    def look(self, lock_wait: float | None = None) -> Seen:
        """Reads its state with one request. Waits at most ``lock_wait`` seconds for another call that uses it."""
        what = f"state of {self._host.id}"
        with self._alone(what, lock_wait):
            return _seen(self._call(what, self._system, is_change=False), what)

    def switch_on(self, settings: MachineSettings, seed: str, *, is_first: bool) -> None:
        """Inserts its boot media, and powers it on. Leaves a system alone that is on already.

        ``seed`` is the URL of its user data, if any; ``is_first``: no earlier call can have powered it on.
        """
        what = f"switching on {self._host.id}"
        with self._alone(what):
            system = self._call(what, self._system, is_change=False)
            if _seen(system, what).power is PowerState.ON:
                if is_first:
                    raise PreconditionError(f"{self._host.id} was switched on by somebody else, and is left alone")
                return
            reset = self._call(what, lambda: _reset_of(system, _ON, self._host.id), is_change=False)
            self._prepare(system, settings, seed)
            self._call(what, lambda: system.reset_system(reset), is_change=True)

    def switch_off(self, *, is_forced: bool) -> None:
        """Orders a shutdown, or forces power off."""
        what = f"switching off {self._host.id}"
        with self._alone(what):
            system = self._call(what, self._system, is_change=False)
            wanted = _FORCED if is_forced else _GRACEFUL
            reset = self._call(what, lambda: _reset_of(system, wanted, self._host.id), is_change=False)
            self._call(what, lambda: system.reset_system(reset), is_change=True)

    def clear(self) -> None:
        """Ejects all media. A system that is on is no longer ours, and is left alone."""
        what = f"ejecting the media of {self._host.id}"
        with self._alone(what):
            system = self._call(what, self._system, is_change=False)
            if _seen(system, what).power is PowerState.OFF:
                self._call(what, lambda: eject_all(system, self._host.id), is_change=True)

    def _prepare(self, system: Any, settings: MachineSettings, seed: str) -> None:
        """Prepares the boot: a failure here leaves the system off. Its media are ejected when it is released."""
        ident = self._host.id
        if settings.image or seed:
            what = f"boot media of {ident}"
            self._call(what, lambda: eject_all(system, ident), is_change=False)
            self._call(what, lambda: insert_all(system, settings.image, seed, ident), is_change=False)
        boot = settings.boot_target
        if boot is not None:
            what = f"boot from {boot.value} of {ident}"
            self._call(what, partial(_set_boot, system, boot, settings.http_boot_url), is_change=False)

    def _system(self) -> Any:
        return self._connection().system()

    def _connection(self) -> _Connection:
        password = self._password.read() if self._password else ""
        if self._made is None or self._made[0] != password:
            self.close()
            self._made = password, _Connection(self._host, self._options, password)
        return self._made[1]

    @contextmanager
    def _alone(self, what: str, lock_wait: float | None = None) -> Iterator[None]:
        """Holds the lock. The wait is limited: all hosts together share few threads."""
        longest = _TURNS * (self._options.connect_timeout + self._options.timeout).total_seconds()
        if not self._lock.acquire(timeout=longest if lock_wait is None else lock_wait):
            raise UnavailableError(f"{what}: it is being switched at this moment")
        try:
            yield
        finally:
            self._lock.release()

    def _call(self, what: str, call: Callable[[], T], *, is_change: bool) -> T:
        """Maps the errors of the library to ours. ``is_change``: a request without a response may have switched it."""
        connection = self._connection()
        connection.session.what, connection.session.is_change = what, is_change
        try:
            return call()
        except SushyError as error:
            raise error_of(error, what, is_change=is_change, pause=connection.session.pause) from None
        except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            why = f"{what}: the controller's answer makes no sense: {type(error).__name__}: {error}"
            raise (InternalError if is_change else UnavailableError)(why) from None


class _Connection:
    """A session of the library with one account. Reads the service root once."""

    def __init__(self, host: RedfishHost, options: RedfishOptions, password: str) -> None:
        self.session = _OnceEach((options.connect_timeout.total_seconds(), options.timeout.total_seconds()))
        self._system_path = host.system
        self._id = host.id
        self._url = host.url
        verify: bool | str = str(host.ca_file or options.ca_file or "") or True
        self._connector = Connector(
            host.url,
            verify=False if host.insecure else verify,
            server_side_retries=0,
        )
        self.session.headers.update(self._connector._session.headers)  # noqa: SLF001 - there is no other way
        self._connector._session = self.session  # noqa: SLF001 - so that it does not repeat failed requests
        kind = BasicAuth if options.auth is Auth.BASIC else SessionAuth
        self._auth = kind(username=host.username or options.username, password=password)
        self._root: Any = None

    def system(self) -> Any:
        """Reads the current state of the system."""
        if self._root is None:
            self._root = sushy.Sushy(self._url, auth=self._auth, connector=self._connector)
        if not self._system_path:
            members = self._root.get_system_collection().members_identities
            if len(members) != 1:
                found = ", ".join(members) or "none"
                raise InvalidArgumentError(f"{self._id}: its controller has not one system but {found}: say `system`")
            self._system_path = members[0]
        return self._root.get_system(self._system_path)

    def close(self) -> None:
        """Ends a session of Redfish, if there is one; the library logs failures."""
        with suppress(SushyError, CloudgraftError):
            self._auth.close()
        if self._root is not None:
            self._root._auth = None  # noqa: SLF001 - else it would do so again when it is garbage-collected
        self._connector.close()


class _OnceEach(requests.Session):
    """Sends each request once. Uses neither a proxy nor a password of this machine's user."""

    def __init__(self, timeout: tuple[float, float]) -> None:
        super().__init__()
        limit_answers(self)
        self._timeout = timeout  # seconds to connect, and for the response; older releases of the library have only one
        self.trust_env = False
        self.what = "request"
        self.is_change = False
        self.pause: float | None = None  # the last response's Retry-After in seconds

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **more: Any) -> requests.Response:
        """Raises our own errors, after which the library does not retry."""
        is_reading = method in ("GET", "HEAD")
        is_change = self.is_change and not is_reading
        given = {**more, "timeout": self._timeout, "allow_redirects": is_reading}
        try:
            response = super().request(method, url, *args, **given)
        except requests.RequestException as error:
            raise error_of_request(error, self.what, is_change=is_change) from None
        finally:
            self.close()  # as the library wants it: an old connection may break just when something is switched
        self.pause = retry_after(response.headers)
        if response.is_redirect and not is_reading:  # following it would switch again, or another host
            kind = DeadlineError if is_change else PreconditionError
            raise kind(f"{self.what}: the controller leads elsewhere (HTTP {response.status_code}); look at url")
        return response


def _seen(system: Any, what: str) -> Seen:
    reported = system.json.get("PowerState")
    # PoweringOn, PoweringOff and Paused count as on: such a system is neither free nor off.
    if reported not in {state.value for state in sushy.PowerState}:
        raise UnavailableError(f"{what}: the controller does not tell whether it is on: {reported!r}")
    power = PowerState.OFF if reported == sushy.PowerState.OFF.value else PowerState.ON
    processors, memory = system.json.get("ProcessorSummary"), system.json.get("MemorySummary")
    cpus = _number(processors, "LogicalProcessorCount") or _number(processors, "CoreCount")
    return Seen(
        power=power,
        cpus=cpus or _number(processors, "Count"),  # sockets: it has at least as many threads
        memory=_number(memory, "TotalSystemMemoryGiB"),
    )


def _number(summary: object, key: str) -> Decimal | None:
    value = summary.get(key) if isinstance(summary, Mapping) else None
    try:
        return Decimal(str(value)) if value and not isinstance(value, bool) else None
    except InvalidOperation:
        return None


def _reset_of(system: Any, wanted: tuple[Any, ...], host: str) -> Any:
    """Returns the first of these that the controller offers."""
    try:
        offered = system.get_allowed_reset_system_values()
    except MissingActionError:
        raise UnsupportedError(f"{host}: its controller cannot switch it: there is no action to reset it") from None
    reset = next((one for one in wanted if one in offered), None)
    if reset is None:
        names = " nor ".join(one.value for one in wanted)
        there = ", ".join(sorted(one.value for one in offered)) or "nothing"
        raise UnsupportedError(f"{host}: its controller offers neither {names}, but {there}")
    return reset


def _set_boot(system: Any, boot: Boot, http_boot_url: str) -> None:
    try:
        system.set_system_boot_options(
            target=sushy.BootSource(boot.value),
            enabled=sushy.BootSourceOverrideEnabled.ONCE,
            http_boot_uri=http_boot_url or None,
        )
    except InvalidParameterValueError:
        there = ", ".join(sorted(one.value for one in system.get_allowed_system_boot_source_values()))
        raise UnsupportedError(
            f"its controller cannot boot it from {boot.value}, but from {there}; see machine.boot"
        ) from None
