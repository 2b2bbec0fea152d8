"""`cloudgraft new`: writes a starter package of a driver or provider, or a receiver for the driver `http`."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from shlex import quote
from string import Template

import click

from cloudgraft._version import __version__
from cloudgraft.cli.groups import Commands
from cloudgraft.cli.terminal import examples, next_steps
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
    "{source}.py.tmpl": "src/{package}/{kind}.py",
    "test.py.tmpl": "tests/test_{kind}.py",
}
_OWN_OF_A_DRIVER = {"cloudgraft.yaml.tmpl": "cloudgraft.yaml"}

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


@command.command("driver", epilog=examples("new driver acme", "new driver acme --async"))
@_name
@click.option(
    "--blocking/--async",
    "is_blocking",
    default=True,
    help="For a library of the cloud that blocks, or for one with async.  [default: blocking, as most are]",
)
@_directory
def _driver(name: str, is_blocking: bool, directory: Path | None) -> None:  # noqa: FBT001 - click gives it by its name
    """Write a driver package: create, delete and list machines of the cloud NAME.

    Its machines are files at first, so that it passes `cloudgraft test-driver` unchanged.
    """
    words = _words("driver", name) | {
        "source": "blocking" if is_blocking else "async",
        "base": "BlockingDriver" if is_blocking else "Driver",
    }
    target = _write_package(words, directory, {**_OWN, **_OWN_OF_A_DRIVER})
    steps = (
        f"pip install -e {quote(str(target))}",
        f"cloudgraft test-driver {name} -c {quote(str(target / 'cloudgraft.yaml'))} --quick --yes",
        f"pip install -e {quote(f'{target}[test]')}",
        f"python -m pytest {quote(str(target))}",
        "cloudgraft drivers",
    )
    _print_steps(words, target, *steps)


@command.command("provider", epilog=examples("new provider acme", title="Example"))
@_name
@_directory
def _provider(name: str, directory: Path | None) -> None:
    """Write a provider package: the node groups of the cloud NAME."""
    words = _words("provider", name) | {"source": "provider"}
    target = _write_package(words, directory, _OWN)
    steps = (
        f"pip install -e {quote(f'{target}[test]')}",
        f"python -m pytest {quote(str(target))}",
        "cloudgraft drivers",
    )
    _print_steps(words, target, *steps)


@command.command("receiver", epilog=examples("new receiver", "new receiver lab/receiver.py", title="Example"))
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("receiver.py"))
def _receiver(path: Path) -> None:
    """Write a receiver for the driver `http` to PATH (default: receiver.py): one file, in plain Python."""
    from cloudgraft.drivers.http.contract import write_receiver

    write_receiver(path)
    done = f"Wrote {path}. It keeps its machines in a file, so it works at once."
    click.echo(next_steps(done, f"python {quote(str(path))} --help"))


def _write_package(words: Mapping[str, str], directory: Path | None, own: Mapping[str, str]) -> Path:
    target = directory or Path(words["distribution"])
    if exists(target) and (not is_directory(target) or any(target.iterdir())):
        raise AlreadyExistsError(f"{target} exists and is not empty: choose another place with --directory")
    sources = {**_COMMON, **{f"{words['kind']}/{source}": place for source, place in own.items()}}
    try:
        for source, place in sources.items():
            path = target / place.format(**words)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(_template(source.format(**words))).substitute(words), encoding="utf-8")
    except OSError as error:
        raise UnavailableError(f"cannot write {error.filename}: {error.strerror}") from error
    return target


def _print_steps(words: Mapping[str, str], target: Path, *steps: str) -> None:
    kind = words["kind"]
    click.echo(next_steps(f"Wrote the {kind} {words['name']} to {target}.", *steps))
    click.echo(
        f"Then put your cloud's calls into {target}/src/{words['package']}/{kind}.py. The README says how to use it."
    )


def _template(source: str) -> str:
    folder = importlib.resources.files("cloudgraft.cli") / "scaffold"
    return folder.joinpath(*source.split("/")).read_text(encoding="utf-8")


def _words(kind: str, name: str) -> dict[str, str]:
    """The values for the templates; raises InvalidArgumentError for a name that no package can have.

    Raises AlreadyExistsError for the name of an installed one: neither of two with one name can be used.
    """
    package = f"cloudgraft_{name.replace('-', '_')}"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise InvalidArgumentError(
            f"{name!r} cannot be the name of a {kind}: use small letters, digits and single hyphens, such as my-cloud"
        )
    others = [
        point for point in entry_points(group=f"cloudgraft.{kind}s", name=name) if point.module != f"{package}.{kind}"
    ]
    if others:
        owner = others[0].dist.name if others[0].dist else others[0].module
        raise AlreadyExistsError(
            f"a {kind} {name} is installed already, by the package {owner}, and neither of two with the same name can "
            "be used: choose another name (`cloudgraft drivers` lists those that are taken)"
        )
    return {
        "kind": kind,
        "name": name,
        "distribution": f"cloudgraft-{name}",
        "package": package,
        "class": "".join(part.capitalize() for part in name.split("-")) + kind.capitalize(),
        "version": __version__,
    }
