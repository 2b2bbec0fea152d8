"""Clouds that are played by fakes, and what can go wrong in each while a machine is created."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cloudgraft.drivers.router.backend import Cloud
from cloudgraft.drivers.router.driver import RouterDriver
from cloudgraft.drivers.router.options import BackendOptions, RouterOptions
from cloudgraft.sdk.blocking import as_driver
from cloudgraft.sdk.driver import Driver
from clouds.judges.ec2 import MACHINE as INSTANCE
from clouds.judges.ec2 import driver_for
from clouds.servers import aws_proxy, hetzner_fake, proxmox_fake
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.libcloud_cases import CLOUDS
from clouds.servers.libcloud_clouds import TOKEN
from clouds.servers.libcloud_fake import Answer
from clouds.servers.openstack_fake import PASSWORD, FakeOpenstack
from tests.drivers.hetzner.hetzner_stage import MACHINE as SERVER
from tests.drivers.hetzner.hetzner_stage import hetzner_driver
from tests.drivers.libcloud import libcloud_driving
from tests.drivers.openstack import openstack_clouds
from tests.drivers.proxmox.proxmox_stage import MACHINE as GUEST
from tests.drivers.proxmox.proxmox_stage import proxmox_driver
from tests.drivers.redfish import redfish_fake
from tests.drivers.redfish.redfish_stage import redfish_driver

CLUSTER = "faults"
TOO_LONG = "#" * 300_000
WRONG = "wrong-" + "w" * 58  # as long as a token of Hetzner


class Fault(enum.Enum):
    """What goes wrong."""

    CREDENTIALS = "wrong credentials"
    PERMISSION = "a missing permission"
    IMAGE = "an unknown image"
    QUOTA = "quota"
    STOCK_OUT = "stock-out"
    RATE_LIMIT = "rate limit"
    SERVER_ERROR = "5xx"
    USER_DATA = "user data over the limit"
    RESET = "connection reset after the request was sent"
    HANG = "no answer"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One of them in one cloud."""

    told: str  # words by which a person knows the cause
    lasts: Callable[[], AbstractContextManager[object]] = nullcontext
    machine: Mapping[str, object] = field(default_factory=dict)  # what the group asks for instead
    user_data: str = ""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A cloud that runs, and a driver of it."""

    driver: Driver
    machine: Mapping[str, object]
    alive: Callable[[], Sequence[str]]  # names, by asking the fake and not the driver
    troubles: Mapping[Fault, Trouble]
    secrets: Sequence[str]


@contextmanager
def _during(begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        end()


def _in_file(file: Path, text: str) -> Callable[[], AbstractContextManager[object]]:
    """Another secret for a while, which the driver notices by itself."""

    @contextmanager
    def lasts() -> Iterator[None]:
        right = file.read_text("utf-8")
        with _during(lambda: file.write_text(text, "utf-8"), lambda: file.write_text(right, "utf-8")):
            yield

    return lasts


@contextmanager
def hetzner(directory: Path, *, retry_after: int = 7) -> Iterator[Stage]:
    with hetzner_fake.FakeHetzner() as fake:

        def fault(**more: Any) -> Callable[[], AbstractContextManager[object]]:
            given = {"kind": hetzner_fake.Kind.ERROR, "method": "POST", "times": -1, **more}
            return lambda: _during(lambda: fake.faults.order(hetzner_fake.Fault(**given)), fake.faults.order)

        def put(**values: Any) -> Callable[[], AbstractContextManager[object]]:
            before = {key: getattr(fake.project, key) for key in values}
            return lambda: _during(lambda: _set(fake.project, values), lambda: _set(fake.project, before))

        @contextmanager
        def held() -> Iterator[None]:
            with fault(kind=hetzner_fake.Kind.HANG_AFTER, times=1)(), _during(lambda: None, fake.hung.set):
                yield

        driver = hetzner_driver(fake, directory)
        token = directory / "token"
        yield Stage(
            driver=as_driver(driver),
            machine=SERVER,
            alive=fake.project.alive,
            secrets=(fake.token, WRONG),
            troubles={
                Fault.CREDENTIALS: Trouble(lasts=_in_file(token, WRONG), told="tokenFile"),
                Fault.PERMISSION: Trouble(lasts=_in_file(token, fake.read_only_token), told="Read & Write"),
                Fault.IMAGE: Trouble(machine={"image": "plan9"}, told="machine.image: the project has no 'plan9'"),
                Fault.QUOTA: Trouble(lasts=put(limit=0), told="limit"),
                Fault.STOCK_OUT: Trouble(lasts=put(sold_out={"cx23"}), told="another server type"),
                Fault.RATE_LIMIT: Trouble(
                    lasts=fault(status=429, code="rate_limit_exceeded", headers={"Retry-After": str(retry_after)}),
                    told="rate_limit_exceeded",
                ),
                Fault.SERVER_ERROR: Trouble(lasts=fault(status=500, code="server_error"), told="server_error"),
                Fault.USER_DATA: Trouble(user_data=TOO_LONG, told="300000 bytes; Hetzner takes 32768 at most"),
                Fault.RESET: Trouble(lasts=fault(kind=hetzner_fake.Kind.RESET_AFTER, times=1), told="not known"),
                Fault.HANG: Trouble(lasts=held, told="not known"),
            },
        )


@contextmanager
def proxmox(directory: Path) -> Iterator[Stage]:
    """It has no quotas, and no limit of user data, which is on a CD."""
    with proxmox_fake.FakeProxmox() as fake:

        def fault(**more: Any) -> Callable[[], AbstractContextManager[object]]:
            given = {"kind": proxmox_fake.Kind.ERROR, "method": "POST", "path": "/clone$", "times": -1, **more}
            return lambda: _during(lambda: fake.faults.order(proxmox_fake.Fault(**given)), fake.faults.order)

        @contextmanager
        def held() -> Iterator[None]:
            with fault(kind=proxmox_fake.Kind.HANG_AFTER, times=1)(), _during(lambda: None, fake.hung.set):
                yield

        denied = ("/vms/9", "VM.Clone")
        driver = proxmox_driver(fake, directory)
        yield Stage(
            driver=as_driver(driver),
            machine=GUEST,
            alive=fake.cluster.alive,
            secrets=(fake.token, WRONG),
            troubles={
                Fault.CREDENTIALS: Trouble(lasts=_in_file(directory / "secret", WRONG), told="tokenFile"),
                Fault.PERMISSION: Trouble(
                    lasts=lambda: _during(
                        lambda: fake.cluster.denied.add(denied), lambda: fake.cluster.denied.discard(denied)
                    ),
                    told="VM.Clone",
                ),
                Fault.IMAGE: Trouble(machine={"template": "plan9"}, told="plan9"),
                Fault.STOCK_OUT: Trouble(
                    lasts=fault(message="no space left on device"), told="no space left on device"
                ),
                Fault.RATE_LIMIT: Trouble(lasts=fault(status=429, message="slow down"), told="slow down"),
                Fault.SERVER_ERROR: Trouble(lasts=fault(message="it is burning"), told="it is burning"),
                # It makes sure itself: the VMID tells whether it was made.
                Fault.RESET: Trouble(lasts=fault(kind=proxmox_fake.Kind.RESET_AFTER, times=1), told=""),
                Fault.HANG: Trouble(lasts=held, told=""),
            },
        )


@contextmanager
def openstack(directory: Path) -> Iterator[Stage]:
    with FakeOpenstack() as cloud:

        def fault(**more: Any) -> Callable[[], AbstractContextManager[object]]:
            return lambda: cloud.trouble(method="POST", path="/compute/v2.1/servers", **more)

        def put(**values: Any) -> Callable[[], AbstractContextManager[object]]:
            before = {key: getattr(cloud.project, key) for key in values}
            return lambda: _during(lambda: _set(cloud.project, values), lambda: _set(cloud.project, before))

        @contextmanager
        def locked_out() -> Iterator[None]:
            with _in_file(directory / f"password-{len(PASSWORD)}", WRONG)():
                cloud.tokens.clear()
                yield

        policy = "Policy doesn't allow os_compute_api:servers:create to be performed."
        yield Stage(
            driver=as_driver(openstack_clouds.driver(cloud, directory)),
            machine=openstack_clouds.MACHINE,
            alive=lambda: [server.name for server in cloud.project.servers.values()],
            secrets=(PASSWORD, WRONG),
            troubles={
                Fault.CREDENTIALS: Trouble(lasts=locked_out, told="requires authentication"),
                Fault.PERMISSION: Trouble(lasts=fault(status=403, message=policy), told="servers:create"),
                Fault.IMAGE: Trouble(machine={"image": "plan9"}, told="machine.image: this project can see no 'plan9'"),
                Fault.QUOTA: Trouble(lasts=put(quota=0), told="Quota exceeded for instances"),
                Fault.STOCK_OUT: Trouble(lasts=put(largest=0), told="No valid host was found"),
                Fault.RATE_LIMIT: Trouble(
                    lasts=fault(status=429, message="slow down", headers={"Retry-After": "7"}), told="slow down"
                ),
                Fault.SERVER_ERROR: Trouble(lasts=fault(status=500, message="it is burning"), told="it is burning"),
                Fault.USER_DATA: Trouble(user_data=TOO_LONG, told="300000 bytes; Nova takes 49149 at most"),
                Fault.RESET: Trouble(lasts=fault(is_reset=True, times=1), told="not known"),
                Fault.HANG: Trouble(lasts=fault(hold=threading.Event(), times=1), told="not known"),
            },
        )


@contextmanager
def digital_ocean(directory: Path) -> Iterator[Stage]:
    """One of the clouds of libcloud."""
    with libcloud_driving.opened("DIGITAL_OCEAN") as fake:

        def fault(status: int, message: str, **headers: str) -> Callable[[], AbstractContextManager[object]]:
            answer = Answer(status, {"id": "x", "message": message}, {"Retry-After": "7", **headers})
            return lambda: fake.trouble(method="POST", path="/v2/droplets", answer=answer)

        limit = "creating this/these droplet(s) will exceed your droplet limit"
        machines = fake.cloud.machines
        yield Stage(
            driver=as_driver(libcloud_driving.driver("DIGITAL_OCEAN", fake, directory)),
            machine=CLOUDS["DIGITAL_OCEAN"].machine,
            alive=lambda: [machine["name"] for machine in machines.values()],
            secrets=(TOKEN, WRONG),
            troubles={
                Fault.CREDENTIALS: Trouble(lasts=_in_file(directory / "secret", WRONG), told="Unable to authenticate"),
                Fault.PERMISSION: Trouble(lasts=fault(403, "You are not authorized"), told="not authorized"),
                Fault.IMAGE: Trouble(lasts=fault(422, "You specified an invalid image"), told="invalid image"),
                Fault.QUOTA: Trouble(lasts=fault(422, limit), told="droplet limit"),
                Fault.STOCK_OUT: Trouble(
                    lasts=fault(422, "Size is not available in this region."), told="Size is not available"
                ),
                Fault.RATE_LIMIT: Trouble(lasts=fault(429, "API Rate limit exceeded."), told="Rate limit exceeded"),
                Fault.SERVER_ERROR: Trouble(lasts=fault(502, "it is burning"), told="it is burning"),
                Fault.USER_DATA: Trouble(user_data=TOO_LONG, told="user data has 300000 bytes"),
                Fault.RESET: Trouble(
                    lasts=lambda: fake.trouble(method="POST", path="/v2/droplets", is_reset=True), told="not known"
                ),
                Fault.HANG: Trouble(
                    lasts=lambda: fake.trouble(method="POST", path="/v2/droplets", hold=threading.Event()),
                    told="not known",
                ),
            },
        )


@contextmanager
def ec2(aws: AwsCloud) -> Iterator[Stage]:
    options = aws.account(CLUSTER)
    secret = Path(options["secretAccessKeyFile"])
    key = Path(options["accessKeyIdFile"]).read_text("utf-8").strip()

    def fault(**more: Any) -> Callable[[], AbstractContextManager[object]]:
        given = {"action": "RunInstances", "key": key, "times": None, **more}
        return lambda: _during(lambda: aws.proxy.order(aws_proxy.Fault(**given)), aws.proxy.clear)

    refused = "You are not authorized to perform this operation."
    yield Stage(
        driver=as_driver(driver_for({**options, "shapes": ["t3.micro"]}, list_delay=timedelta(0))),
        machine=INSTANCE,
        alive=lambda: [name for name in aws.alive() if name.startswith(f"{CLUSTER}-")],
        secrets=(secret.read_text("utf-8").strip(), WRONG),
        troubles={
            Fault.CREDENTIALS: Trouble(lasts=_in_file(secret, WRONG), told="is the secret key right?"),
            Fault.PERMISSION: Trouble(
                lasts=fault(code="UnauthorizedOperation", status=403, message=refused), told="UnauthorizedOperation"
            ),
            Fault.IMAGE: Trouble(
                lasts=fault(code="InvalidAMIID.NotFound", message="The image id does not exist"), told="machine.image"
            ),
            Fault.QUOTA: Trouble(lasts=fault(code="VcpuLimitExceeded", message="too many"), told="VcpuLimitExceeded"),
            Fault.STOCK_OUT: Trouble(
                lasts=fault(code="InsufficientInstanceCapacity", status=500, message="none is left"),
                told="none is left",
            ),
            Fault.RATE_LIMIT: Trouble(
                lasts=fault(code="RequestLimitExceeded", status=503, message="slow down"), told="slow down"
            ),
            Fault.SERVER_ERROR: Trouble(
                lasts=fault(code="InternalError", status=500, message="it is burning"), told="it is burning"
            ),
            Fault.USER_DATA: Trouble(user_data=TOO_LONG, told="300000 bytes; EC2 takes 16384 at most"),
            Fault.RESET: Trouble(lasts=fault(kind=aws_proxy.Kind.LOST, times=1), told="not known"),
            Fault.HANG: Trouble(lasts=fault(kind=aws_proxy.Kind.HANG, times=1), told="not known"),
        },
    )


@contextmanager
def redfish(directory: Path) -> Iterator[Stage]:
    """Hosts that are there anyway: nobody has a quota of them, and none is out of stock but by being in use.

    One that may still come up, because nobody knows what became of its switch, is not given out for a while: so two.
    """
    with redfish_fake.FakeRedfish(*(redfish_fake.FakeSystem(id=name) for name in ("h1", "h2"))) as fake:

        def fault(**more: Any) -> Callable[[], AbstractContextManager[object]]:
            given = {"kind": "error", "part": "Actions/ComputerSystem.Reset", **more}
            one = redfish_fake.Fault(**given)
            return lambda: _during(lambda: fake.faults.append(one), fake.faults.clear)

        def message(code: str, status: int) -> Callable[[], AbstractContextManager[object]]:
            return fault(status=status, message=f"Base.1.8.{code}", headers={"Retry-After": "7"})

        yield Stage(
            driver=as_driver(redfish_driver(fake, directory)),
            machine={},
            alive=lambda: [system.id for system in fake.systems.values() if system.is_on()],
            secrets=(redfish_fake.PASSWORD, WRONG),
            troubles={
                Fault.CREDENTIALS: Trouble(
                    lasts=_in_file(directory / "password", WRONG), told="username and passwordFile"
                ),
                Fault.PERMISSION: Trouble(lasts=message("InsufficientPrivilege", 403), told="role Operator"),
                Fault.IMAGE: Trouble(
                    machine={"image": "https://images.example/os.iso"},
                    lasts=fault(part="InsertMedia", status=400, message="Base.1.8.CouldNotEstablishConnection"),
                    told="CouldNotEstablishConnection",
                ),
                Fault.RATE_LIMIT: Trouble(lasts=message("SessionLimitExceeded", 503), told="SessionLimitExceeded"),
                Fault.SERVER_ERROR: Trouble(lasts=message("GeneralError", 500), told="GeneralError"),
                Fault.USER_DATA: Trouble(user_data="#", told="user data cannot be given to a host"),
                Fault.RESET: Trouble(lasts=fault(kind="reset after", times=1), told="not known"),
            },
        )


@contextmanager
def router(directory: Path) -> Iterator[Stage]:
    """Two accounts at Hetzner. What makes the router ask the next cloud is wrong with both; after an answer that was
    lost it asks nobody else. It keeps a cloud's Retry-After by a clock of its own, which a test has no hand on.
    """
    for name in ("near", "far"):
        (directory / name).mkdir()
    with hetzner(directory / "near", retry_after=0) as near, hetzner(directory / "far", retry_after=0) as far:
        stages = {"near": near, "far": far}

        def both(fault: Fault) -> Callable[[], AbstractContextManager[object]]:
            @contextmanager
            def lasts() -> Iterator[None]:
                with near.troubles[fault].lasts(), far.troubles[fault].lasts():
                    yield

            return lasts

        def found(fault: Fault, trouble: Trouble) -> Trouble:
            machine = {"shape": fault.value} if trouble.machine else {}
            lasts = trouble.lasts if fault in (Fault.RESET, Fault.HANG) else both(fault)
            return replace(trouble, machine=machine, lasts=lasts)

        odd = {**near.machine, **near.troubles[Fault.IMAGE].machine}
        options = RouterOptions(
            shapes={
                "any": [BackendOptions(cloud=name, machine=stage.machine) for name, stage in stages.items()],
                Fault.IMAGE.value: [BackendOptions(cloud=name, machine=odd) for name in stages],
            }
        )
        clouds = {name: Cloud(make=partial(_same, stage.driver)) for name, stage in stages.items()}
        yield Stage(
            driver=RouterDriver(options, clouds),
            machine={"shape": "any"},
            alive=lambda: [*near.alive(), *far.alive()],
            secrets=(*near.secrets, *far.secrets),
            troubles={fault: found(fault, trouble) for fault, trouble in near.troubles.items()},
        )


def _same(driver: Driver) -> Driver:
    return driver


def _set(thing: object, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        setattr(thing, key, value)
