"""`cloudgraft new`: writes a starter package of a driver or provider, or a receiver for the driver `http`."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path
from string import Template

import click

from cloudgraft._version import __version__
from cloudgraft.cli.groups import Commands
from cloudgraft.cli.terminal import examples
from cloudgraft.sdk.common.files import exists, is_directory
from cloudgraft.sdk.errors import AlreadyExistsError, InvalidArgumentError, UnavailableError

# The target of each template; {package} and {module} are filled in. The suffix keeps tools from reading them as code.
_COMMON = {
    "common/pyproject.toml.tmpl": "pyproject.toml",
    "common/gitignore.tmpl": ".gitignore",
    "common/main.py.tmpl": "src/{package}/__main__.py",
}
_OWN = {
    "README.md.tmpl": "README.md",
    "init.py.tmpl": "src/{package}/__init__.py",
    "{kind}.py.tmpl": "src/{package}/{kind}.py",
    "test.py.tmpl": "tests/test_{kind}.py",
}

_name = click.argument("name")
_directory = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write it (default: cloudgraft-NAME in this directory).",
)


@click.group(
    "new",
    cls=Commands,
    epilog=examples("new driver acme", "new provider acme --directory ~/src/acme", "new receiver", title="Example"),
)
def command() -> None:
    """Write a starter that works unchanged: a driver, a provider or a receiver.

    Write a driver when your cloud has machines, and a provider when it has its own node groups. A receiver is the
    server for the driver `http`, for clouds with three HTTPS endpoints.
    """


@command.command("driver", epilog=examples("new driver acme", title="Example"))
@_name
@_directory
def _driver(name: str, directory: Path | None) -> None:
    """Write a driver package: create, delete and list machines of the cloud NAME."""
    _write_package("driver", name, directory)


@command.command("provider", epilog=examples("new provider acme", title="Example"))
@_name
@_directory
def _provider(name: str, directory: Path | None) -> None:
    """Write a provider package: the node groups of the cloud NAME."""
    _write_package("provider", name, directory)


@command.command("receiver", epilog=examples("new receiver", "new receiver lab/receiver.py", title="Example"))
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("receiver.py"))
def _receiver(path: Path) -> None:
    """Write a receiver for the driver `http` to PATH (default: receiver.py): one file, in plain Python."""
    from cloudgraft.drivers.http.contract import write_receiver

    write_receiver(path)
    click.echo(f"Wrote {path}. It keeps its machines in a file, so it works at once: python {path} --help")


def _write_package(kind: str, name: str, directory: Path | None) -> None:
    words = _words(kind, name)
    target = directory or Path(words["distribution"])
    if exists(target) and (not is_directory(target) or any(target.iterdir())):
        raise AlreadyExistsError(f"{target} exists and is not empty: choose another place with --directory")
    sources = {**_COMMON, **{f"{kind}/{source}": place for source, place in _OWN.items()}}
    try:
        for source, place in sources.items():
            path = target / place.format(**words)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(_template(source.format(**words))).substitute(words), encoding="utf-8")
    except OSError as error:
        raise UnavailableError(f"cannot write {error.filename}: {error.strerror}") from error
    click.echo(
        f"Wrote the {kind} {words['name']} to {target}. Next:\n"
        f"  pip install -e {target}\n"
        f"  python -m pytest {target}\n"
        f"  cloudgraft drivers\n"
        f"Then put your cloud's calls into {target}/src/{words['package']}/{kind}.py. The README says how to use it."
    )


def _template(source: str) -> str:
    folder = importlib.resources.files("cloudgraft.cli") / "scaffold"
    return folder.joinpath(*source.split("/")).read_text(encoding="utf-8")


def _words(kind: str, name: str) -> dict[str, str]:
    """The values for the templates; raises InvalidArgumentError for a name that no package can have."""
    package = f"cloudgraft_{name.replace('-', '_')}"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise InvalidArgumentError(
            f"{name!r} cannot be the name of a {kind}: use small letters, digits and single hyphens, such as my-cloud"
        )
    return {
        "kind": kind,
        "name": name,
        "distribution": f"cloudgraft-{name}",
        "package": package,
        "class": "".join(part.capitalize() for part in name.split("-")) + kind.capitalize(),
        "version": __version__,
    }
