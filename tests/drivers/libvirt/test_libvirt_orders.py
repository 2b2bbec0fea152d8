"""From a group's machine to an order, the room that a host has, errors by their codes, and turns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from cloudgraft.drivers.common.locks import NamedLocks
from cloudgraft.drivers.libvirt.domains import Image, Marks, Offer, uuid_of
from cloudgraft.drivers.libvirt.errors import ERRORS, error_of
from cloudgraft.drivers.libvirt.options import DomainType, LibvirtOptions, Network, ShapeOptions
from cloudgraft.drivers.libvirt.order import Order, check_room, order_of, request_of
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:  # it needs libvirt
    from cloudgraft.drivers.libvirt.host import Host

GI = 2**30
STRANGER = "5f1e1e2e-0000-4000-8000-000000000001"


@dataclass
class Domain:
    id: str
    state: int = 1
    memory: int = GI


class FakeHost:
    """A host as far as it is asked before anything is made."""

    def __init__(self, domains: Sequence[Domain] = (), room: int = 100 * GI, arch: str = "x86_64") -> None:
        self._arch = arch
        self._domains = list(domains)
        self._room = room
        self.networks: list[Network] = []

    def image(self, name: str) -> tuple[Any, Image]:
        return name, Image(path=f"/vms/{name}", format="raw", capacity=10 * GI)

    def check_networks(self, networks: Sequence[Network]) -> None:
        self.networks += networks

    def offer(self) -> Offer:
        return Offer(arch=self._arch, types=frozenset({(self._arch, "kvm")}))

    def domains(self) -> list[Any]:
        return list(self._domains)

    def memory(self) -> int:
        return 16 * GI

    def room(self) -> int:
        return self._room


def options(**changes: Any) -> LibvirtOptions:
    shapes = {"small": ShapeOptions(cpu=2, memory="4Gi", disk="20Gi"), "bare": ShapeOptions(cpu=1, memory="1Gi")}
    return LibvirtOptions(**{"shapes": shapes, "image": "base", **changes})


def order(host: FakeHost | None = None, given: LibvirtOptions | None = None, **machine: object) -> Order:
    spec = MachineSpec(name="n-1", group="g", settings=machine, user_data="#cloud-config\n# hidden-token\n")
    given = given or options()
    return order_of(request_of(spec, given), Marks.of(spec, "vms"), cast("Host", host or FakeHost()), given)


def test_a_group_says_more_than_its_shape_and_that_more_than_the_image() -> None:
    assert order(shape="bare").size == 10 * GI
    assert order(shape="small").size == 20 * GI
    assert order(shape="small", size="30Gi").size == 30 * GI


def test_an_overlay_is_qcow2_and_a_copy_is_what_its_image_is() -> None:
    overlay, copy = order(shape="bare"), order(shape="bare", disk="clone")
    assert (overlay.plan.disk_format, overlay.is_clone) == ("qcow2", False)
    assert (copy.plan.disk_format, copy.is_clone) == ("raw", True)


def test_the_host_says_what_is_not_configured() -> None:
    assert order(shape="bare").plan.domain_type is DomainType.KVM
    assert order(None, options(domain_type=DomainType.QEMU), shape="bare").plan.domain_type is DomainType.QEMU
    assert order(None, options(arch="aarch64"), shape="bare").plan.domain_type is DomainType.QEMU


def test_a_host_of_another_architecture_must_be_said_so_since_its_groups_templates_go_by_that() -> None:
    with pytest.raises(InvalidArgumentError, match="say `arch: aarch64`"):
        order(FakeHost(arch="aarch64"), shape="bare")
    assert order(FakeHost(arch="aarch64"), options(arch="aarch64"), shape="bare").plan.domain_type is DomainType.KVM


def test_a_group_may_have_other_networks_or_none() -> None:
    host = FakeHost()
    assert order(host, shape="bare").plan.networks == (Network(network="default"),)
    assert host.networks == [Network(network="default")]
    assert order(shape="bare", networks=[]).plan.networks == []


def test_an_order_shows_no_user_data() -> None:
    made = order(shape="bare")
    assert b"hidden-token" in made.seed
    assert "hidden-token" not in repr(made)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({"shape": "huge"}, "there is: small, bare"),
        ({"shape": "bare", "size": "1Gi"}, "less than the image"),
    ],
)
def test_what_can_never_be_made_is_refused(machine: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        order(**machine)  # type: ignore[arg-type]  # these are settings of a machine only


def test_a_machine_needs_an_image() -> None:
    with pytest.raises(InvalidArgumentError, match="image"):
        order(None, options(image=""), shape="bare")


OURS, OFF = Domain(uuid_of("a")), Domain(uuid_of("b"), state=5)
OTHER, OTHER_OFF = Domain(STRANGER), Domain(STRANGER, state=5)


@pytest.mark.parametrize(
    ("limits", "domains", "is_refused"),
    [
        ({}, [OURS] * 100, False),
        ({"max_machines": 2}, [OURS], False),
        ({"max_machines": 2}, [OURS, OFF], True),
        ({"max_machines": 2}, [OTHER, OTHER, OURS], False),
        ({"host_memory_reserve": "12Gi"}, [], False),
        ({"host_memory_reserve": "12Gi"}, [OTHER], True),
        ({"host_memory_reserve": "12Gi"}, [OTHER_OFF], False),
        ({"host_memory_reserve": "12Gi"}, [OFF], True),  # one that is being made
        ({"pool_reserve": "100Gi"}, [], False),
        ({"pool_reserve": "101Gi"}, [], True),
    ],
)
def test_a_host_without_room_is_out_of_stock(limits: dict[str, Any], domains: list[Domain], is_refused: bool) -> None:
    if not is_refused:
        check_room(cast("Host", FakeHost(domains)), options(**limits), 4 * GI)
        return
    with pytest.raises(OutOfStockError):
        check_room(cast("Host", FakeHost(domains)), options(**limits), 4 * GI)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (38, "cannot write '/vms/a': No space left on device", OutOfStockError),
        (
            1,
            "qemu unexpectedly closed the monitor: guest memory: Cannot allocate memory",
            OutOfStockError,
        ),
        (1, "qemu unexpectedly closed the monitor: something else", PreconditionError),
        (45, "authentication failed", AuthenticationError),
        (38, "Cannot recv data: root@kvm1: Permission denied (publickey).: Connection reset", AuthenticationError),
        (38, "Cannot recv data: Host key verification failed.: Connection reset by peer", AuthenticationError),
        (38, "Failed to connect socket to '/run/libvirt/libvirt-sock': Permission denied", PermissionDeniedError),
        (88, "access denied", PermissionDeniedError),
        (49, "no storage pool with matching name 'x'", InvalidArgumentError),
        (50, "no storage vol with matching name 'x'", InvalidArgumentError),
        (43, "no network with matching name 'x'", InvalidArgumentError),
        (67, "Emulator does not support virt type 'kvm'", InvalidArgumentError),
        (9, "operation failed: domain 'a' already exists with uuid 5f1e1e2e", AlreadyExistsError),
        (42, "no domain with matching uuid", NotFoundError),
        (55, "Requested operation is not valid: network 'lab' is not active", PreconditionError),
        (3, "this function is not supported by the connection driver", UnsupportedError),
        (1, "internal error: client socket is closed", DeadlineError),
        (1, "internal error: connection closed due to keepalive timeout", DeadlineError),
        (38, "Cannot recv data: Connection reset by peer", DeadlineError),
        (12345, "an error of the next century", DeadlineError),
    ],
)
def test_an_error_of_libvirt_has_its_class(code: int, message: str, expected: type[CloudgraftError]) -> None:
    change = error_of(code, message, "starting n-1", is_change=True)
    assert type(change) is expected
    assert "starting n-1" in change.message
    look = error_of(code, message, "listing", is_change=False)
    assert type(look) is (UnavailableError if expected is DeadlineError else expected)


def test_only_what_libvirt_says_counts_and_not_the_name_that_it_is_about() -> None:
    """Law 3: a pool of an odd name must not make an unknown outcome a certain one."""
    error = error_of(38, "Connection reset by peer", "making the disk in no space left on device", is_change=True)
    assert type(error) is DeadlineError


def test_what_is_missing_on_the_host_names_the_option() -> None:
    for code, option in {49: "pool", 50: "image", 43: "networks", 67: "domainType"}.items():
        assert option in error_of(code, "x", "y", is_change=True).message
    assert all(row.code.startswith("VIR_ERR_") for row in ERRORS.rows if row.code)


def test_calls_about_one_machine_wait_for_each_other_and_not_for_ever() -> None:
    turns = NamedLocks(timedelta(milliseconds=50))
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with turns.take("a"):
            entered.set()
            leave.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(20)
    with turns.take("b"), pytest.raises(UnavailableError, match="nothing was done"), turns.take("a"):
        raise AssertionError("two at once")
    leave.set()
    holder.join(20)
    with turns.take("a"):
        pass
    assert not turns._locks
