"""What is behind ``labctl`` (examples/exec): of each of its machines it makes one that joins a cluster.

``labctl`` keeps a directory for each machine, with the user data that it was given; this process follows them. It is
run by scenarios, as ``python -m e2e.stand_in.lab_host``.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import click

from e2e.stand_in.host import Source, Started, serve

__all__ = ["SIZES", "main"]

SIZES: Final = {"small": {"cpu": "2", "memory": "4Gi"}, "large": {"cpu": "4", "memory": "8Gi"}}


class Lab(Source):
    """The books of ``labctl``."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def running(self) -> set[str]:
        """All that are in the books."""
        return set(self._ordered())

    def started(self, id_: str) -> Started:
        """From the machine's directory."""
        directory = self._ordered()[id_]
        try:
            user_data = (directory / "user-data").read_text("utf-8")
            size = (directory / "size").read_text("utf-8").strip()
        except FileNotFoundError:
            raise LookupError(id_) from None
        return Started(name=directory.name, capacity=SIZES[size], user_data=user_data)

    def _ordered(self) -> dict[str, Path]:
        """The directory of each machine, by its id."""
        found = {}
        for path in self._home.glob("machines/*/id"):
            try:
                found[path.read_text("utf-8").strip()] = path.parent
            except FileNotFoundError:
                continue  # deleted meanwhile
        return found


@click.command()
@click.option("--home", type=click.Path(path_type=Path), required=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True)
def main(home: Path, kubeconfig: Path) -> None:
    """Run the machines of a lab."""
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(serve(Lab(home), home, kubeconfig))


if __name__ == "__main__":
    main()
