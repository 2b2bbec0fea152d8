"""sushy-tools' emulator of Redfish controllers: over real virtual machines of libvirt, or over nothing.

It is installed from PyPI into an environment of its own, below the cache directory. It speaks HTTPS and asks who one
is, as a controller does. All its systems are behind one address, where real hosts have a controller each.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import threading
import urllib.request
import uuid
import venv
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cloudgraft.certs.authority import create_bundle
from clouds.judge import Tell
from clouds.servers.libvirtd import Libvirtd
from e2e.processes import Program, free_ports
from e2e.waiting import until

__all__ = ["PASSWORD", "POOL", "USER", "Emulator", "Published", "define_hosts", "installed", "system_id"]

USER: Final = "operator"
PASSWORD: Final = "emulated-controller-password"
POOL: Final = "media"
_PACKAGES: Final = ("sushy-tools==2.2.0", "libvirt-python==12.8.0")
_MADE: Final = "made-of"
_SECONDS: Final = 30.0
_HASH: Final = "import bcrypt, sys; print(bcrypt.hashpw(sys.stdin.read().encode(), bcrypt.gensalt(4)).decode())"
_DOMAIN: Final = """<domain type='qemu'>
  <name>{name}</name><uuid>{uuid}</uuid>
  <memory unit='GiB'>1</memory><vcpu>2</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type><boot dev='hd'/></os>
  <features><acpi/></features>
  <devices><serial type='null'/></devices>
</domain>
"""


def installed(tell: Tell) -> Path:
    """The environment, made now if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "cloudgraft" / "clouds" / "redfish" / "venv"
    made, wanted = directory / _MADE, "\n".join(_PACKAGES)
    if made.exists() and made.read_text("utf-8") == wanted:
        return directory
    tell(f"installing sushy-tools from PyPI into {directory}, once ...")
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True, symlinks=True)
    command: list[str | Path] = [
        directory / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    done = subprocess.run([*command, *_PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"sushy-tools cannot be installed:\n{done.stderr[-2000:]}")
    made.write_text(wanted, "utf-8")
    return directory


def system_id(name: str) -> str:
    """The uuid of a host, by which the emulator knows it."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def define_hosts(libvirtd: Libvirtd, names: Sequence[str]) -> None:
    """Virtual machines that are off, with two threads and a GiB each, and nothing to boot from."""
    libvirtd.make_pool(POOL, libvirtd.images)
    for name in names:
        file = libvirtd.home / f"{name}.xml"
        file.write_text(_DOMAIN.format(name=name, uuid=system_id(name)), "utf-8")
        libvirtd.virsh("define", str(file))


class Emulator(Program):
    """One emulator. Without a URI of libvirt its hosts are no machines, and change their power late."""

    def __init__(self, directory: Path, tell: Tell, *, libvirt_uri: str = "", fakes: Sequence[str] = ()) -> None:
        environment = installed(tell)
        directory.mkdir(parents=True)
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        self.ca_file = create_bundle(directory / "certs", hosts=["127.0.0.1"]).ca_cert
        config = self._config(directory, environment, port, libvirt_uri, fakes)
        command: list[str | Path] = [environment / "bin" / "sushy-emulator", "--config", config]
        temporary = directory / "tmp"
        temporary.mkdir()
        super().__init__("sushy-emulator", command, directory / "emulator.log", environment={"TMPDIR": str(temporary)})

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        super().start()
        until(self._answers, "the emulator answers", seconds=_SECONDS, check=self.check)

    def _config(self, directory: Path, environment: Path, port: int, uri: str, fakes: Sequence[str]) -> Path:
        state, accounts = directory / "state", directory / "accounts"
        state.mkdir()
        made = subprocess.run(
            [environment / "bin" / "python", "-c", _HASH], input=PASSWORD, capture_output=True, text=True, check=True
        )
        accounts.write_text(f"{USER}:{made.stdout.strip()}\n", "utf-8")
        certs = directory / "certs"
        settings: dict[str, object] = {
            "LISTEN_IP": "127.0.0.1",
            "LISTEN_PORT": port,
            "STATE_DIR": str(state),
            "AUTH_FILE": str(accounts),
            "SSL_CERT": str(certs / "server.crt"),
            "SSL_KEY": str(certs / "server.key"),
        }
        if uri:
            settings |= {"LIBVIRT_URI": uri, "STORAGE_POOL": POOL}
        else:
            systems = [{"uuid": system_id(one), "name": one, "power_state": "Off", "nics": []} for one in fakes]
            settings |= {"FAKE_DRIVER": True, "FAKE_SYSTEMS": systems}
        file = directory / "emulator.conf"
        file.write_text("".join(f"SUSHY_EMULATOR_{key} = {value!r}\n" for key, value in settings.items()), "utf-8")
        return file

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=self.ca_file)
        try:
            with urllib.request.urlopen(f"{self.url}/redfish/v1/", context=context, timeout=5.0):
                return True
        except OSError:
            return False


class Published:
    """A directory on a web server, from which the emulator fetches images as a controller does."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        handler = partial(_Quiet, directory=str(directory))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library calls it so
        """Nothing is written for each request."""
