"""The stub receiver as a process of its own, and the options of a driver that calls it."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from cloudgraft.certs.authority import Bundle
from cloudgraft.drivers.http.contract import write_receiver
from cloudgraft.drivers.http.options import Options

HMAC_KEY = "the-key-that-both-sides-have"


class ReceiverProcess:
    """With TLS, client certificates and signatures when there is a bundle; else plain, on loopback."""

    def __init__(self, directory: Path, bundle: Bundle | None = None, *arguments: str) -> None:
        self.directory = directory
        self.bundle = bundle
        self.program = directory / "receiver.py"
        if not self.program.exists():
            write_receiver(self.program)
        self.key_file = directory / "hmac.key"
        self.key_file.write_text(HMAC_KEY + "\n")
        command = [sys.executable, str(self.program), "--listen", "127.0.0.1:0", "--state", str(directory / "cloud.db")]
        if bundle is not None:
            command += ["--cert", str(bundle.server_cert), "--key", str(bundle.server_key)]
            command += ["--client-ca", str(bundle.ca_cert), "--hmac-key-file", str(self.key_file)]
        self.command = [*command, *arguments]
        self.url = ""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if line.startswith("serving on "):
                self.url = line.split()[-1]
                # Whatever else it says must not fill the pipe.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return self
        raise AssertionError("".join(seen))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(10)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def options(self, **changes: Any) -> Options:
        """Those of a driver that is let in."""
        options = Options(url=self.url)
        if self.bundle is not None:
            options = replace(
                options,
                ca_file=self.bundle.ca_cert,
                cert_file=self.bundle.client_cert,
                key_file=self.bundle.client_key,
                hmac_key_file=self.key_file,
            )
        return replace(options, **changes)

    def ask(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """A call by somebody else than the driver: the status, and the JSON of the answer."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if self.bundle is None:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
        else:
            context = ssl.create_default_context(cafile=self.bundle.ca_cert)
            context.load_cert_chain(self.bundle.client_cert, self.bundle.client_key)
            connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=10, context=context)
        try:
            connection.request(method, parts.path + target, body, dict(headers or {}))
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None
        finally:
            connection.close()
