"""What would run in virtual machines that have nothing but a kernel: each joins a cluster once it has really booted.

A machine prints its user data to its serial console (:mod:`clouds.servers.libvirt_guest`); its stand-in reads it there,
and begins when it is all there. It is run by scenarios, as ``python -m e2e.stand_in.libvirt_host``.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from pathlib import Path
from typing import Final

import click

from clouds.servers.libvirt_guest import BEGIN, END
from e2e.stand_in.host import Source, Started, serve

__all__ = ["CAPACITY", "main"]

CAPACITY: Final = {"cpu": "2", "memory": "4Gi"}
_META_DATA: Final = '{\n "instance-id"'  # how what comes behind the user data begins


class Consoles(Source):
    """The machines of a daemon that have booted, by what they have printed."""

    def __init__(self, uri: str, consoles: Path) -> None:
        self._uri = uri
        self._consoles = consoles

    def running(self) -> set[str]:
        """By their names, which are their ids as well."""
        command = ["virsh", "--quiet", "--connect", self._uri, "list", "--name"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30.0)
        return {name for name in done.stdout.split() if END in self._printed(name)}

    def started(self, id_: str) -> Started:
        """With the user data that the machine has read from its seed."""
        printed = self._printed(id_)
        if END not in printed:
            raise LookupError(id_)
        user_data = printed.partition(f"{BEGIN}\n")[2].partition(_META_DATA)[0]
        return Started(name=id_, capacity=CAPACITY, user_data=user_data)

    def _printed(self, name: str) -> str:
        try:
            return (self._consoles / f"{name}.log").read_text("utf-8", "replace").replace("\r\n", "\n")
        except FileNotFoundError:
            return ""


@click.command()
@click.option("--uri", required=True)
@click.option("--consoles", type=click.Path(path_type=Path), required=True)
@click.option("--home", type=click.Path(path_type=Path), required=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True)
def main(uri: str, consoles: Path, home: Path, kubeconfig: Path) -> None:
    """Run what would be in the virtual machines."""
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(serve(Consoles(uri, consoles), home, kubeconfig))


if __name__ == "__main__":
    main()
