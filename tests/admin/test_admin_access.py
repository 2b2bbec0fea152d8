"""Who may call as an operator: the user of the socket, and the holders of named certificates (law 9)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.admin.caller import caller
from cloudgraft.admin.client import AdminClient, ClientTls
from cloudgraft.admin.server import AdminServer
from cloudgraft.certs.authority import Bundle, create_bundle, issue_client
from cloudgraft.sdk.errors import (
    CloudgraftError,
    InvalidArgumentError,
    PermissionDeniedError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.server.listener import Access
from cloudgraft.server.tls import TlsFiles
from tests.needs import needs_root

NOBODY = 65534


async def echo(request: Mapping[str, object]) -> Mapping[str, object]:
    return request


async def who(request: Mapping[str, object]) -> Mapping[str, object]:
    return {"caller": caller()}


@asynccontextmanager
async def listening(where: Path | Access) -> AsyncIterator[AdminServer]:
    server = AdminServer({"echo": echo, "who": who}, where)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """One that every user can enter, and write to."""
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-admin-"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
async def test_the_socket_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        async with listening(tmp_path / "admin") as server:
            assert server.path is not None
            assert stat.S_IMODE(server.path.stat().st_mode) & 0o077 == 0
            assert stat.S_IMODE(server.path.stat().st_mode) == 0o600 & ~mask or mask == 0o777
            assert os.umask(mask) == mask  # it is put back
    finally:
        os.umask(before)


@needs_root
async def test_another_user_cannot_connect(open_directory: Path) -> None:
    async with listening(open_directory / "admin"):
        attempt = await asyncio.to_thread(_connect_as, NOBODY, open_directory / "admin")
        assert attempt == "PermissionError"
        assert await asyncio.to_thread(_connect_as, os.geteuid(), open_directory / "admin") == "connected"


def _connect_as(user: int, path: Path) -> str:
    code = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "try: s.connect(sys.argv[2]); print('connected')\n"
        "except OSError as error: print(type(error).__name__)\n"
    )
    command = [sys.executable, "-c", code, str(user), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


async def test_another_user_is_told_so_in_plain_words(open_directory: Path) -> None:
    path = open_directory / "admin"
    is_root = os.geteuid() == 0
    async with listening(path):
        if not is_root:
            path.chmod(0)  # the kernel answers its owner, who cannot become another user, as it would answer one
        code = (
            "import asyncio, os, sys\n"
            "from cloudgraft.admin.client import AdminClient\n"
            "async def main():\n"
            "    async with AdminClient(sys.argv[2]) as client:\n"
            "        await client.call('echo')\n"
            f"if {is_root}: os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
            "try: asyncio.run(main())\n"
            "except Exception as error: print(type(error).__name__, error)\n"
        )
        command = [sys.executable, "-c", code, str(NOBODY), f"unix:{path}"]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.stdout == (
        f"PermissionDeniedError this user may not use the admin socket {path}: "
        "run the command as the user of the server\n"
    )


async def test_what_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    async with listening(path), AdminClient(path) as client:
        assert await client.call("echo", {"n": 1}) == {"n": 1}
    assert not path.exists()


async def test_the_socket_of_a_living_server_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin"
    async with listening(path), AdminClient(path) as client:
        with pytest.raises(PreconditionError, match="another process answers at the admin socket"):
            await AdminServer({}, path).start()
        assert await client.call("echo", {"n": 1}) == {"n": 1}
    async with listening(path):  # and free again afterwards
        pass


async def test_a_living_server_that_does_not_answer_is_left_alone_too(tmp_path: Path) -> None:
    path = tmp_path / "admin"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        callers = []
        for _ in range(5):  # its queue is full
            caller = socket.socket(socket.AF_UNIX)
            caller.setblocking(False)
            caller.connect_ex(str(path))
            callers.append(caller)
        with pytest.raises(PreconditionError, match="another process answers"):
            await AdminServer({}, path).start()
        for caller in callers:
            caller.close()
    assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "admin"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("elsewhere")
    with pytest.raises(PreconditionError, match="there is something else by that name"):
        await AdminServer({}, path).start()
    assert path.lstat()


async def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="its directory does not exist"):
        await AdminServer({}, tmp_path / "no" / "admin").start()
    (tmp_path / "file").touch()
    with pytest.raises(PreconditionError, match="cannot make the admin socket"):
        await AdminServer({}, tmp_path / "file" / "admin").start()


async def test_a_path_that_is_too_long_is_told_by_both_sides_with_a_way_out(open_directory: Path) -> None:
    fits = open_directory / ("x" * (107 - len(str(open_directory)) - 1))
    async with listening(fits), AdminClient(fits) as client:
        assert await client.call("echo", {"n": 1}) == {"n": 1}
    long = fits.with_name(f"{fits.name}x")
    for make in (lambda: AdminServer({}, long), lambda: AdminClient(long)):
        with pytest.raises(InvalidArgumentError, match=r"has 108 bytes.* at most 107.*example /run/cloudgraft/x+"):
            make()


async def test_bytes_count_and_not_characters_and_any_name_will_do(open_directory: Path) -> None:
    path = open_directory / "ä b%20#?é:c"
    async with listening(path) as server, AdminClient(server.address) as client:
        assert path.is_socket()
        assert await client.call("echo", {"n": 1}) == {"n": 1}
    many = open_directory / ("ä" * 50)
    with pytest.raises(InvalidArgumentError, match="at most 107"):
        AdminServer({}, many)


async def test_a_relative_path_is_kept_over_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server, client = AdminServer({"echo": echo}, Path("admin")), AdminClient("unix:admin")
    monkeypatch.chdir("/")
    await server.start()
    async with client:
        assert await client.call("echo") == {}
    await server.stop(0)
    assert server.address == f"unix:{tmp_path}/admin"


def access(bundle: Bundle) -> Access:
    files = TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
    return Access(listen="127.0.0.1:0", tls=files, allowed_clients=["operator"])


async def failure(address: str, tls: ClientTls) -> CloudgraftError:
    async with AdminClient(address, tls=tls, timeout=20) as client:
        with pytest.raises(CloudgraftError) as caught:
            await client.call("echo")
    return caught.value


async def test_a_named_certificate_may_call_and_no_other(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path / "ours", hosts=["127.0.0.1"])
    cert, key = issue_client(tmp_path / "ours", "operator")
    operator = ClientTls(cert=cert, key=key, ca=bundle.ca_cert)
    async with listening(access(bundle)) as server:
        async with AdminClient(server.address, tls=operator) as client:
            assert await client.call("echo", {"n": 1}) == {"n": 1}
            assert "operator" in str((await client.call("who"))["caller"])  # so that events name who gave an order
        autoscaler = ClientTls(cert=bundle.client_cert, key=bundle.client_key, ca=bundle.ca_cert)
        refused = await failure(server.address, autoscaler)
        assert isinstance(refused, PermissionDeniedError)
        assert "allowedClients" in refused.message

        other = create_bundle(tmp_path / "theirs", hosts=["127.0.0.1"])
        stranger = ClientTls(cert=other.client_cert, key=other.client_key, ca=bundle.ca_cert)
        assert isinstance(await failure(server.address, stranger), CloudgraftError)
        fooled = replace(operator, ca=other.ca_cert)  # the server is not who the client expects
        error = await failure(server.address, fooled)
        assert isinstance(error, UnavailableError)
        assert "check address and certificates" in error.message
        assert isinstance(await failure(server.address, replace(operator, server_name="other")), UnavailableError)


async def test_a_port_without_tls_is_refused_by_both_sides(tmp_path: Path) -> None:
    for listen in ("127.0.0.1:0", "localhost:9000"):
        with pytest.raises(InvalidArgumentError, match="without TLS"):
            AdminServer({}, Access(listen=listen))
        with pytest.raises(InvalidArgumentError, match="without TLS"):
            AdminClient(listen)
    with pytest.raises(InvalidArgumentError, match="without TLS"):
        AdminServer({}, Access(listen="0.0.0.0:9000", insecure=True))
    with pytest.raises(InvalidArgumentError, match="as a path"):
        AdminServer({}, Access(listen="unix:/tmp/admin"))
    bundle = create_bundle(tmp_path, hosts=["127.0.0.1"])
    with pytest.raises(InvalidArgumentError, match="name the operators"):
        AdminServer({}, replace(access(bundle), allowed_clients=()))


async def test_a_port_that_is_closed_is_a_clear_error(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, hosts=["127.0.0.1"])
    operator = ClientTls(cert=bundle.client_cert, key=bundle.client_key, ca=bundle.ca_cert)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = await failure(f"127.0.0.1:{unused.getsockname()[1]}", operator)
    assert isinstance(error, UnavailableError)
    assert error.message.startswith("no cloudgraft server answers at 127.0.0.1:")
    assert "`cloudgraft serve --config FILE`" in error.message
