"""Builds the driver of one cloud of a configuration file for the driver kit, without a journal and without a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.config import Config
from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.conformance.driver.proxy import LosingProxy
from cloudgraft.conformance.driver.settings import Trouble
from cloudgraft.dock.driver import DockDriver
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import create_limit
from cloudgraft.plugins.host.remote import RemoteDriver
from cloudgraft.plugins.registry import arguments
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, PreconditionError
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import SimulatedOptions

SIMULATED: Final = "simulated"
_DOCK: Final = "dock"
_LEAST: Final = 4  # machines at the same time: fewer prove nothing about calls that overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCase:
    """One cloud and one of its groups, as `cloudgraft serve` would use them."""

    cloud: str
    driver: str  # its name in the file
    group: str
    machine: Mapping[str, object]
    make: Callable[[], Driver]
    list_delay: timedelta | None  # None: a program of its own declares it when it runs
    call_timeout: timedelta
    max_machines: int | None  # the tightest guard of the file
    # A driver whose cloud loses an answer; None when its address is not one of plain HTTP.
    troubled: Callable[[Trouble], Driver | None] | None = None

    @property
    def is_free(self) -> bool:
        """Whether its machines cost nothing."""
        return self.driver == SIMULATED


@contextmanager
def driver_case(config: Config, cloud: str, group: str = "", *, proxy_option: str = "") -> Iterator[DriverCase]:
    """The case of one cloud. Raises CloudgraftError when the file has no such cloud, or it cannot be tested.

    ``proxy_option`` is the driver's option with the address of its cloud, which the kit puts a proxy before. By default
    that is the only one with a plain HTTP address on loopback, if there is one.

    A simulated cloud without ``url`` would live in each driver: it runs beside the kit instead, in memory only.
    """
    _check_cloud(config, cloud)
    with ExitStack() as stack:
        wanted = desired_state(config)
        if _is_inside(config, cloud):
            config = with_option(config, cloud, "url", stack.enter_context(_served(config, cloud)))
            wanted = desired_state(config)
        case = _case(wanted, cloud, _group(wanted, cloud, group))
        key = proxy_option or _address_option(config, cloud)
        yield replace(case, troubled=_LosingClouds(config, cloud, key, stack) if key else None)


def with_option(config: Config, cloud: str, key: str, value: object) -> Config:
    """The configuration with one option of one cloud changed."""
    section = config.clouds[cloud]
    change = {key: value} if isinstance(section, EntryPointCloud) else {"options": {**section.options, key: value}}
    changed = section.model_copy(update=change)
    return config.model_copy(update={"clouds": {**config.clouds, cloud: changed}})


class _LosingClouds:
    """Makes drivers whose cloud is behind a proxy that loses an answer: with each driver that of a later request."""

    def __init__(self, config: Config, cloud: str, key: str, stack: ExitStack) -> None:
        address = config.clouds[cloud].options.get(key)
        if not isinstance(address, str):
            raise InvalidArgumentError(f"cloud {cloud} has no option {key} with the address of its cloud")
        LosingProxy.check(address)
        self._address = address
        self._config, self._cloud, self._key, self._stack = config, cloud, key, stack
        self._made: Counter[Trouble] = Counter()

    def __call__(self, trouble: Trouble) -> Driver | None:
        """The driver; None for other troubles."""
        if trouble not in (Trouble.ERROR_AFTER, Trouble.LOST_ANSWER):
            return None
        proxy = self._stack.enter_context(LosingProxy(self._address, trouble, skip=self._made[trouble]))
        self._made[trouble] += 1
        changed = desired_state(with_option(self._config, self._cloud, self._key, proxy.url))
        return changed.clouds[self._cloud].make()


def _address_option(config: Config, cloud: str) -> str:
    """The option with a plain HTTP address on loopback; empty unless it is the only one."""
    found = [key for key, value in config.clouds[cloud].options.items() if _is_local(value)]
    return found[0] if len(found) == 1 else ""


def _is_local(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith("http://"):
        return False
    host = urlsplit(value).hostname
    return host is not None and is_loopback_host(host)


def _check_cloud(config: Config, cloud: str) -> None:
    if cloud not in config.clouds:
        known = ", ".join(config.clouds) or "none"
        raise InvalidArgumentError(f"the file has no cloud named {cloud}; its section `clouds` has: {known}")
    if config.observe_only or config.clouds[cloud].engine.observe_only:
        raise PreconditionError(
            f"the file says observeOnly for cloud {cloud}: nothing may be created there. Use a file without it to test "
            "the driver"
        )
    section = config.clouds[cloud]
    if isinstance(section, EntryPointCloud) and section.driver == _DOCK and not section.options.get("address"):
        raise PreconditionError(
            f"the driver of cloud {cloud} dials in to the dock of a running server, and this command runs none. Give "
            "the cloud the `address` of that server's dock"
        )


def _is_inside(config: Config, cloud: str) -> bool:
    """Whether the cloud is a simulated one that lives in its driver."""
    section = config.clouds[cloud]
    return isinstance(section, EntryPointCloud) and section.driver == SIMULATED and not section.options.get("url")


@contextmanager
def _served(config: Config, cloud: str) -> Iterator[str]:
    """The address of a simulated cloud with the file's options."""
    section = config.clouds[cloud]
    (options,) = arguments(SimulatedDriver, section.options, config.where("clouds", cloud))
    if not isinstance(options, SimulatedOptions):
        raise InternalError(f"the options of cloud {cloud} are {type(options).__name__}")
    with closing(SimulatedCloud(replace(options, state_file=None))) as served:
        server = HttpServer(served)
        try:
            server.start()
            yield server.url
        finally:
            server.stop()


def _group(wanted: DesiredState, cloud: str, group: str) -> GroupDeclaration:
    """The group whose machine settings are used."""
    found = [each for each in wanted.groups if each.cloud == cloud]
    if group:
        found = [each for each in found if each.id == group]
        if not found:
            known = ", ".join(each.id for each in wanted.groups if each.cloud == cloud) or "none"
            raise InvalidArgumentError(f"cloud {cloud} has no node group {group}; it has: {known}")
    if not found:
        raise PreconditionError(
            f"no node group of the file uses cloud {cloud}, so nothing says which machines to create: add a node group "
            "with its `machine` section"
        )
    if len(found) > 1:
        names = ", ".join(each.id for each in found)
        raise InvalidArgumentError(f"cloud {cloud} has several node groups; choose one with --group: {names}")
    return found[0]


def _case(wanted: DesiredState, cloud: str, group: GroupDeclaration) -> DriverCase:
    declared = wanted.clouds[cloud]
    driver = declared.make()
    return DriverCase(
        cloud=cloud,
        driver=declared.settings.driver,
        group=group.id,
        machine=group.machine,
        make=declared.make,
        list_delay=None if isinstance(driver, RemoteDriver | DockDriver) else driver.traits.list_delay,
        call_timeout=timedelta(seconds=create_limit(declared.settings, driver.traits)),
        max_machines=_guard(wanted, declared),
    )


def _guard(wanted: DesiredState, declared: CloudDeclaration) -> int | None:
    limits = (wanted.settings.guards.max_machines, declared.settings.guards.max_machines)
    given = [limit for limit in limits if limit is not None]
    if given and min(given) < _LEAST:
        raise PreconditionError(
            f"guards.maxMachines allows {min(given)} machines, and the kit needs {_LEAST} at the same time: test with "
            "a file that allows more"
        )
    return min(given) if given else None
