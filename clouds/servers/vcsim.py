"""A vCenter, played by govmomi's simulator (vcsim): built from its Go module once, started here, and asked here."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from e2e.build import Recipe, Tell, build
from e2e.processes import Program, free_ports
from e2e.waiting import until

__all__ = ["FOLDER", "TEMPLATE", "USER", "VERSION", "Vcsim", "missing", "vcsim", "vim"]

GOVMOMI: Final = "github.com/vmware/govmomi"
VERSION: Final = "v0.56.0"
USER: Final = "cloudgraft@vsphere.local"
FOLDER: Final = "cloudgraft"
TEMPLATE: Final = "DC0_C0_RP0_VM0"  # one of the machines that the simulator begins with, made a template
_SOURCE: Final = Path(__file__).with_name("vcsim.go")

_library: Any = importlib.import_module("pyVmomi")  # its types are made when they are first used
vim: Any = _library.vim


def missing() -> str:
    """What this machine lacks for it."""
    if shutil.which("go") is None and not _binary().exists():
        return "the Go toolchain, to build vcsim from its module (https://go.dev/dl, or Debian's golang-go)"
    return ""


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cloudgraft" / "clouds" / "vsphere"


def _recipe() -> Recipe:
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    return Recipe(key=f"vcsim-{VERSION}-{digest}", module=GOVMOMI, version=VERSION, programs={"vcsim": "."})


def _binary() -> Path:
    return _cache() / "bin" / _recipe().key / "vcsim"


def _built(tell: Tell) -> Path:
    recipe = _recipe()
    work = _cache() / "build" / recipe.key
    work.mkdir(parents=True, exist_ok=True)
    shutil.copy(_SOURCE, work / "main.go")
    return build(recipe, tell, cache=_cache())["vcsim"]


class Vcsim:
    """A vCenter that runs, as its administrator sees it: never through the driver."""

    def __init__(self, port: int, ca: Path, cert: Path, key: Path, password: str) -> None:
        self.port = port
        self.ca_file = ca
        self.cert_file, self.key_file = cert, key
        self.password = password
        stub = _library.SoapStubAdapter(
            host="127.0.0.1",
            port=port,
            version="vim.version.v8_0_3_0",
            sslContext=self.outward(),
            httpConnectionTimeout=20,
        )
        self.content: Any = vim.ServiceInstance("ServiceInstance", stub).RetrieveContent()
        self._log_in()

    def _log_in(self) -> None:
        self.session: str = self.content.sessionManager.Login(USER, self.password, None).key

    def inward(self) -> ssl.SSLContext:
        """As this vCenter shows itself."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def outward(self) -> ssl.SSLContext:
        """As clients know it."""
        return ssl.create_default_context(cafile=self.ca_file)

    def prepare(self) -> None:
        """A folder, a template with a snapshot, and the template's clones under our command."""
        self.content.searchIndex.FindByInventoryPath("DC0/vm").CreateFolder(FOLDER)
        template = self.machine(f"DC0/vm/{TEMPLATE}")
        self.done(template.PowerOffVM_Task())
        self.done(template.CreateSnapshot_Task("base", "", False, False))
        template.MarkAsTemplate()
        pod = self.content.searchIndex.FindByInventoryPath("DC0/datastore/DC0_POD0")
        self.done(pod.MoveIntoFolder_Task([self.content.searchIndex.FindByInventoryPath("DC0/datastore/LocalDS_1")]))
        self.clones(template=TEMPLATE)

    def machine(self, path: str) -> Any:
        """A virtual machine."""
        return self.content.searchIndex.FindByInventoryPath(path)

    def machines(self, folder: str = FOLDER) -> Sequence[Any]:
        """What is in a folder."""
        return list(self.machine(f"DC0/vm/{folder}").childEntity)

    def names(self, folder: str = FOLDER) -> Sequence[str]:
        """Their names."""
        return [str(one.name) for one in self.machines(folder)]

    def done(self, task: Any) -> Any:
        """A task's result, when it is over and has not failed."""
        self._over(task)
        assert task.info.state == "success", task.info.error
        return task.info.result

    def _over(self, task: Any) -> None:
        until(lambda: task.info.state in ("success", "error"), "vcsim does its task", seconds=30)

    def clones(self, *, fault: str = "", late: bool = False, delay: int = 0, template: str = "") -> None:
        """From now on clones fail with this fault, or take so many milliseconds."""
        told = {"fault": fault, "late": "yes" if late else "", "delay": str(delay), "template": template}
        url = f"https://127.0.0.1:{self.port}/judge?{urlencode(told)}"
        with urllib.request.urlopen(url, context=self.outward(), timeout=20) as answer:
            assert answer.status == 200

    def clone_tasks(self, path: str) -> Sequence[Any]:
        """A property of each clone task that is remembered, where it is set."""
        collector = _library.vmodl.query.PropertyCollector
        step = collector.TraversalSpec(type=vim.TaskManager, path="recentTask", skip=False)
        start = collector.ObjectSpec(obj=self.content.taskManager, skip=True, selectSet=[step])
        wanted = collector.PropertySpec(type=vim.Task, pathSet=["info.descriptionId", path], all=False)
        spec = collector.FilterSpec(objectSet=[start], propSet=[wanted])
        found = self.content.propertyCollector.RetrieveContents([spec])
        shown = [{one.name: one.val for one in task.propSet} for task in found]
        clones = [one for one in shown if one["info.descriptionId"].startswith("VirtualMachine.clone")]
        return [one[path] for one in clones if path in one]

    def end_sessions(self) -> int:
        """Ends every session but our own; how many there were."""
        others = [one.key for one in self.content.sessionManager.sessionList if one.key != self.session]
        if others:
            self.content.sessionManager.TerminateSession(others)
        return len(others)

    def empty(self, folder: str = FOLDER) -> None:
        """Deletes what is in a folder."""
        for one in self.machines(folder):
            self._over(one.PowerOffVM_Task())
            self.done(one.Destroy_Task())


@contextmanager
def vcsim(directory: Path, tell: Tell, password: str) -> Iterator[Vcsim]:
    """Starts it, with all its files below ``directory``."""
    binary = _built(tell)
    certs = directory / "certs"
    subprocess.run(
        [sys.executable, "-m", "cloudgraft.cli", "certs", "init", str(certs), "--host", "127.0.0.1"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    port = free_ports(1)[0]
    cert, key = certs / "server.crt", certs / "server.key"
    command: list[str | Path] = [binary, "-listen", f"127.0.0.1:{port}", "-user", USER, "-cert", cert, "-key", key]
    program = Program("vcsim", command, directory / "vcsim.log", environment={"VCSIM_PASSWORD": password})
    program.start()
    try:
        until(_listens(port), "vcsim listens", seconds=60, check=program.check)
        server = Vcsim(port, certs / "ca.crt", cert, key, password)
        server.prepare()
        yield server
    finally:
        program.stop()


def _listens(port: int) -> Callable[[], bool]:
    def look() -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    return look
