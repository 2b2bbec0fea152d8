"""Installed packages, made up: a directory that is on the path, with metadata and entry points in it."""

from __future__ import annotations

from pathlib import Path


def write_package(directory: Path, name: str, *, group: str, points: dict[str, str], code: str = "") -> None:
    """A distribution ``name`` 1.0 with one module, ``name`` with underscores, and these entry points."""
    (directory / f"{name.replace('-', '_')}.py").write_text(code)
    info = directory / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{point} = {target}" for point, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


DRIVER = '''
from dataclasses import dataclass
from cloudgraft.sdk import BlockingDriver, Provider

class AcmeDriver(BlockingDriver):
    """Machines of ACME [the cloud].

    More that nobody wants to see in a list.
    """

    @dataclass
    class Options:
        token_file: str
        region: str = "here"

    def __init__(self, options):
        self.options = options

    create = delete = list = lambda self, *_: None

class Half(BlockingDriver):
    def list(self):
        return []

class BadOptions(AcmeDriver):
    Options = 7

class NotOne:
    pass
'''
