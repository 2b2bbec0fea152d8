"""A host of libvirt with many domains: a real daemon with libvirt's own test driver, which runs nothing.

Calls are counted on their way: each is one packet, which begins with its length.
"""

from __future__ import annotations

import shutil
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from clouds.servers.libvirtd import Libvirtd

_LENGTH: Final = struct.Struct(">I")
_CALL: Final = 0  # the type of a packet that wants an answer
_KEEPALIVE: Final = 0x6B656570  # signs of life are a program of their own


def missing() -> str:
    """Why no such host can be had here; empty when it can."""
    if find_spec("libvirt") is None:
        return "libvirt-python is not installed"
    return "" if shutil.which("libvirtd", path="/usr/sbin:/sbin:/usr/bin:/bin") else "libvirtd is not installed"


class LibvirtHost:
    """The daemon, and a socket before it."""

    def __init__(self, directory: Path, machines: Sequence[tuple[str, dict[str, str]]]) -> None:
        import libvirt  # noqa: PLC0415 - it may be missing

        self.requests = 0
        self._daemon = Libvirtd(directory)
        self._daemon.start()
        address = f"test+unix:///default?socket={self._daemon.socket}"
        self._connection: Any = libvirt.open(address)  # while it is open, the test driver remembers its domains
        for name, tags in machines:
            self._connection.defineXML(_domain(name, tags)).create()
        self._socket = self._daemon.home / "counted"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._socket))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        """For the driver, which takes those of QEMU only: the daemon is told the test driver's in its place."""
        return f"qemu+unix:///default?socket={self._socket}"

    def close(self) -> None:
        """Ends the daemon."""
        self._listener.close()
        self._connection.close()
        self._daemon.stop()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host = socket.socket(socket.AF_UNIX)
                host.connect(str(self._daemon.socket))
                threading.Thread(target=self._forward, args=(client, host), daemon=True).start()
                threading.Thread(target=_copy, args=(host, client), daemon=True).start()

    def _forward(self, client: socket.socket, host: socket.socket) -> None:
        stream = client.makefile("rb")
        with suppress(OSError), host:
            while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
                (length,) = _LENGTH.unpack(head)
                body = stream.read(length - _LENGTH.size)
                if _LENGTH.unpack_from(body)[0] != _KEEPALIVE:
                    self.requests += 1
                if b"qemu:///default" in body:  # it opens the connection
                    head, body = _opened(body)
                host.sendall(head + body)


def _opened(body: bytes) -> tuple[bytes, bytes]:
    """The same packet for libvirt's test driver, whose name has as many letters."""
    body = body.replace(b"qemu:///default", b"test:///default")
    return _LENGTH.pack(len(body) + _LENGTH.size), body


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError), target:
        while data := source.recv(1 << 16):
            target.sendall(data)


def _domain(name: str, tags: dict[str, str]) -> str:
    from cloudgraft.drivers.libvirt.domains import Marks, uuid_of  # noqa: PLC0415 - with libvirt only

    domain = ET.Element("domain", type="test")
    for key, text in {"name": name, "uuid": uuid_of(name), "memory": "1024"}.items():
        ET.SubElement(domain, key).text = text
    ET.SubElement(ET.SubElement(domain, "os"), "type").text = "hvm"
    marks = Marks(name=name, pool="default", since=datetime(2026, 1, 1, tzinfo=UTC), tags=tags)
    ET.SubElement(domain, "metadata").append(marks.element())
    return ET.tostring(domain, encoding="unicode")
