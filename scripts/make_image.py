"""Builds the image of deploy/Dockerfile with docker, podman or buildah, whichever works here: ``make image``.

Where the official images cannot be pulled, the base is a minimal Debian made by debootstrap, and the native transport
is compiled here instead of in a stage of its own. The Dockerfile is the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from cloudgraft._version import __version__
from scripts.debian_tree import CannotMakeTreeError, debian_tree

__all__ = ["NOT_RUN", "TREE", "Builder", "CannotBuildError", "Image", "build_image", "find_builder"]

NOT_RUN: Final = 3  # as of every command of this tree: something that it needs is not here
TREE: Final = Path(__file__).resolve().parent.parent
_DOCKERFILE: Final = TREE / "deploy/Dockerfile"
_SUITE: Final = "trixie"
_DEBIAN_BASE: Final = f"localhost/cloudgraft-base:{_SUITE}"
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


class CannotBuildError(Exception):
    """There is no image to be had here. The text is one line for people."""


@dataclass(frozen=True, slots=True)
class Builder:
    """A program that builds images and keeps them."""

    program: str  # docker, podman or buildah

    def run(self, *arguments: str | Path, quiet: bool = False) -> str:
        """What it prints on stdout. Raises CannotBuildError when it fails."""
        command = [self.program, *map(str, arguments)]
        stderr = subprocess.PIPE if quiet else None
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, env=self._environment()
        )
        if done.returncode:
            told = (done.stderr or "").strip().splitlines()[-1:] or ["see above"]
            raise CannotBuildError(f"{self.program} {arguments[0]} failed: {told[0]}")
        return done.stdout.strip()

    def can_have(self, image: str) -> bool:
        """Whether the image is here, or was pulled now."""
        for arguments in (("images", "--quiet", image), ("pull", "--quiet", image)):
            try:
                if self.run(*arguments, quiet=True):
                    return True
            except CannotBuildError:
                continue
        return False

    def _environment(self) -> dict[str, str]:
        # No namespaces are needed to build ours; inside of other containers they are often not to be had.
        return {"BUILDAH_ISOLATION": "chroot", **os.environ}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What was built."""

    name: str
    builder: Builder
    base: str
    size: str
    has_native: bool


def find_builder(wanted: str = "") -> Builder:
    """The first one that works, or the wanted one. Raises CannotBuildError."""
    for program in (wanted,) if wanted else ("docker", "buildah", "podman"):
        # docker's command alone is no use: its daemon has to answer.
        if (
            shutil.which(program)
            and subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0
        ):
            return Builder(program)
    raise CannotBuildError(f"no {wanted or 'docker, buildah or podman'} that works: apt-get install buildah")


def build_image(builder: Builder, *, base: str = "", native_venv: Path, python: Path) -> Image:
    """Builds it. Without a base, from the official images if they can be had, else from a Debian made here."""
    defaults = _defaults()
    is_ours = not base and not builder.can_have(defaults["BASE"])
    base = base or (_debian_base(builder) if is_ours else defaults["BASE"])
    name = f"cloudgraft:{__version__}"
    with _native(builder, defaults["RUST"], native_venv, python) as (context, has_native):
        arguments = ["--build-arg", f"BASE={base}", *context, *(_trust(builder) if is_ours else ())]
        _say(f"building {name} on {base} with {builder.program}")
        builder.run("build", *arguments, "-f", _DOCKERFILE, "-t", name, TREE)
    # Newest first; buildah lists names that merely begin alike too.
    (size, *_) = builder.run("images", "--format", "{{.Size}}", name).splitlines()
    return Image(name=name, builder=builder, base=base, size=size, has_native=has_native)


def _defaults() -> dict[str, str]:
    """The images that the Dockerfile itself names."""
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", _DOCKERFILE.read_text("utf-8"), re.MULTILINE))


def _debian_base(builder: Builder) -> str:
    _say(f"no registry has the base for us: making one of Debian {_SUITE} with debootstrap (a minute, once a day)")
    try:
        tree = debian_tree(_SUITE)
    except CannotMakeTreeError as error:
        raise CannotBuildError(
            f"{error}. Or give an image that has Python: BASE=registry.example/python:3.13"
        ) from None
    with tempfile.TemporaryDirectory() as name:
        context = Path(name)
        os.link(tree, context / "base.tar") if _same_disk(tree, context) else shutil.copy(tree, context / "base.tar")
        (context / "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["python3"]\n', "utf-8")
        builder.run("build", "--quiet", "-t", _DEBIAN_BASE, context)
    return _DEBIAN_BASE


def _same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def _trust(builder: Builder) -> Sequence[str]:
    """Lets pip trust whom this machine trusts, such as a company's proxy, while it builds. The image keeps its own."""
    if builder.program == "docker" or not _AUTHORITIES.exists():
        return ()
    return "--volume", f"{_AUTHORITIES}:{_AUTHORITIES}:ro"


@contextmanager
def _native(builder: Builder, rust: str, native_venv: Path, python: Path) -> Iterator[tuple[Sequence[str], bool]]:
    """The arguments for the native transport, and whether the image will have it."""
    if builder.can_have(rust):
        yield (), True
        return
    with tempfile.TemporaryDirectory() as name:
        wheels = Path(name) / "wheels"
        wheels.mkdir()
        if shutil.which("cargo"):
            _say("compiling the native transport here (minutes the first time)")
            options = ("--quiet", "--release", "--locked", "--interpreter", python, "--out", wheels)
            subprocess.run([native_venv / "bin/maturin", "build", *options], cwd=TREE / "native", check=True)
        else:
            _say(f"WITHOUT the native transport: {rust} cannot be pulled, and there is no cargo here")
        yield ("--build-context", f"native={name}"), any(wheels.iterdir())


def _say(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--base", default="", metavar="IMAGE", help="With Python 3.11 or newer, in place of the Dockerfile's.")
@click.option("--builder", default="", metavar="PROGRAM", help="docker, podman or buildah; else whichever works.")
@click.option("--native-venv", default=".venv-native", type=click.Path(path_type=Path), help="Where maturin is.")
def main(*, base: str, builder: str, native_venv: Path) -> None:
    """Build the image of deploy/Dockerfile."""
    try:
        image = build_image(
            find_builder(builder), base=base, native_venv=native_venv.absolute(), python=Path(sys.executable)
        )
    except CannotBuildError as error:
        print(f"there is no image: {error}", file=sys.stderr)
        sys.exit(NOT_RUN)
    native = "with" if image.has_native else "without"
    print(f"{image.name}: {image.size}, {native} the native transport, on {image.base}, by {image.builder.program}")


if __name__ == "__main__":
    main()
