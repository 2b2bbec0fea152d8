"""Faults of vSphere, broken connections and secrets."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.vsphere.driver import VsphereDriver
from cloudgraft.drivers.vsphere.errors import ERRORS, error_of_fault
from cloudgraft.drivers.vsphere.options import ShapeOptions, VsphereOptions
from cloudgraft.drivers.vsphere.pyvmomi import vim, vmodl
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    UnavailableError,
)

PASSWORD = "a-secret-of-this-test"


@pytest.mark.parametrize(
    ("fault", "kind", "word"),
    [
        (vim.fault.InsufficientCpuResourcesFault(unreserved=1, requested=2), OutOfStockError, "room"),
        (vim.fault.NoDiskSpace(datastore="ds1"), OutOfStockError, "ds1"),
        (vim.fault.InsufficientStorageSpace(), OutOfStockError, "datastore"),
        (vim.fault.NoCompatibleHost(), OutOfStockError, "host"),
        (vim.fault.VmLimitLicense(limit=4), QuotaExceededError, "licence"),
        (vim.fault.InvalidLogin(), AuthenticationError, "passwordFile"),
        (vim.fault.PasswordExpired(), AuthenticationError, "passwordFile"),
        (vim.fault.NoPermission(privilegeId="VirtualMachine.Provisioning.Clone"), PermissionDeniedError, "ning.Clone"),
        (vim.fault.DuplicateName(name="prod-1"), AlreadyExistsError, "prod-1"),
        (vim.fault.TaskInProgress(), ConflictError, "TaskInProgress"),
        (vim.fault.InaccessibleDatastore(name="ds1"), InvalidArgumentError, "datastore"),
        (vmodl.fault.InvalidArgument(invalidProperty="spec.config"), InvalidArgumentError, "spec.config"),
        (vim.fault.InvalidDeviceSpec(property="x", deviceIndex=0), InvalidArgumentError, "template"),
    ],
)
def test_a_fault_is_told_by_its_class_or_by_its_nearest_parent(
    fault: Any, kind: type[CloudgraftError], word: str
) -> None:
    error = error_of_fault(fault, "clone of prod-1", is_change=True)
    assert type(error) is kind
    assert word in error.message
    assert error.message.startswith("clone of prod-1: ")


def test_what_nobody_knows_is_unknown_for_a_change_and_harmless_for_a_read() -> None:
    fault = vmodl.fault.SystemError(reason="out of luck")
    assert type(error_of_fault(fault, "clone", is_change=True)) is DeadlineError
    assert type(error_of_fault(fault, "list", is_change=False)) is UnavailableError
    assert "out of luck" in error_of_fault(fault, "list", is_change=False).message


def test_every_row_names_a_fault_that_there_is() -> None:
    spaces = (vim.fault, vmodl.fault)
    assert [row.code for row in ERRORS.rows if not any(hasattr(space, row.code) for space in spaces)] == []


# -- no vCenter, or not a sound one ------------------------------------------------------------------------------------


def driver(tmp_path: Path, port: int, **changes: Any) -> VsphereDriver:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    given: dict[str, Any] = {
        "server": f"127.0.0.1:{port}",
        "user": "u",
        "password_file": password,
        "datacenter": "DC0",
        "cluster": "C0",
        "template": "t",
        "insecure": True,
        "shapes": {"small": ShapeOptions(cpu=2, memory="4Gi")},
        "connect_timeout": timedelta(seconds=1),
        "timeout": timedelta(seconds=1),
    }
    return VsphereDriver(VsphereOptions(**{**given, **changes}))


@contextmanager
def listener(answer: bytes | None) -> Iterator[int]:
    """Accepts connections; says something and closes them, or says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve() -> None:
            while True:
                try:
                    met, _ = server.accept()
                except OSError:
                    return
                kept.append(met)
                if answer is not None:
                    met.sendall(answer)
                    met.close()

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        for one in kept:
            one.close()


def test_a_vcenter_that_is_away_has_done_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    away = driver(tmp_path, port)
    spec = MachineSpec(name="prod-1", group="g", settings={"shape": "small"}, user_data="a-token-in-user-data")
    for call in (away.list, lambda: away.create(spec)):
        with pytest.raises(UnavailableError, match="cannot connect") as caught:
            call()
        assert PASSWORD not in caught.value.message
        assert "a-token" not in caught.value.message
    away.close()


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_hangs_or_speaks_no_tls_ends_in_time(tmp_path: Path, answer: bytes | None) -> None:
    with listener(answer) as port, pytest.raises(UnavailableError, match="cannot connect"):
        driver(tmp_path, port).list()


def test_bad_files_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "ca.crt"
    broken.write_text("no certificate")
    with pytest.raises(PreconditionError, match="caFile"):
        driver(tmp_path, 9, insecure=False, ca_file=broken).list()
    with pytest.raises(PreconditionError, match="passwordFile"):
        driver(tmp_path, 9, password_file=tmp_path / "nothing").list()


def test_the_password_is_in_no_repr(tmp_path: Path) -> None:
    made = driver(tmp_path, 9)
    with pytest.raises(UnavailableError):
        made.list()
    assert PASSWORD not in repr(vars(made))


def test_certificates_are_checked_unless_told_otherwise(tmp_path: Path) -> None:
    from cloudgraft.drivers.vsphere.pyvmomi import tls_context

    strict = driver(tmp_path, 9, insecure=False)._options
    assert tls_context(strict).verify_mode is ssl.CERT_REQUIRED
    assert tls_context(driver(tmp_path, 9)._options).verify_mode is ssl.CERT_NONE
