"""Says how to install an extra of a package that is installed without it.

The command must work for the installation that runs. A clone is not installed from an index, and a name that nothing
was published under would fetch nothing, or a package of somebody else.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cloudgraft.sdk.errors import PreconditionError

OURS = "cloudgraft"
NATIVE = "native"  # its package is built in the same tree
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def install_command(*extras: str, package: str = OURS) -> str:
    """Returns the command that adds these extras to the installed package."""
    source = _source(package)
    tree = _path(source) if "dir_info" in source else None
    if tree is not None and package == OURS and NATIVE in extras:
        return "make native" if tree == Path.cwd() else f"make -C {shlex.quote(str(tree))} native"
    names = f"[{','.join(extras)}]"
    if tree is not None:
        editable = "-e " if source["dir_info"].get("editable") else ""
        return f"{_pip_install()} {editable}{shlex.quote(f'{_short(tree)}{names}')}"
    wanted = f"{package}{names} @ {source['url']}" if "url" in source else f"{package}{names}"
    return f"{_pip_install()} {shlex.quote(wanted)}"


def check_installed(what: str, *modules: str, extra: str) -> None:
    """Raises PreconditionError that says how to install the extra, unless all these modules are installed.

    Imports none of them. ``what`` needs them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise _not_installed(what, missing, extra)


@contextmanager
def needing(what: str, *extras: str) -> Iterator[None]:
    """Turns a failed import of a library in the block into PreconditionError that says how to install the extras."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == OURS:
            raise  # a bug
        raise _not_installed(what, [error.name], *extras) from error


def not_installed(package: Distribution, extras: Sequence[str]) -> list[str]:
    """Returns the distributions that these extras of a package need, and that are not installed."""
    markers = [re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]") for extra in extras]
    wanted = (line.partition(";") for line in package.requires or ())
    named = {_NAME.match(requirement) for requirement, _, marker in wanted if any(m.search(marker) for m in markers)}
    return sorted(name for name in {match[0] for match in named if match} if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _not_installed(what: str, missing: Sequence[str], *extras: str) -> PreconditionError:
    which = f"{', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
    return PreconditionError(f"{what} needs {which}: {install_command(*extras)}")


def _source(package: str) -> dict[str, Any]:
    """Returns where the package was installed from (PEP 610); empty when it came from an index."""
    try:
        text = distribution(package).read_text("direct_url.json")
        found = json.loads(text) if text else {}
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _path(source: dict[str, Any]) -> Path | None:
    url = urlsplit(str(source.get("url", "")))
    return Path(url2pathname(url.path)) if url.scheme == "file" else None


def _pip_install() -> str:
    """Returns the pip of this interpreter: the one in PATH may be that of another."""
    python = Path(sys.executable)
    found = shutil.which("pip")
    if found is not None and Path(found).parent == python.parent:
        return "pip install"
    if importlib.util.find_spec("pip") is None:  # as in environments that uv makes
        return f"uv pip install --python {shlex.quote(_short(python))}"
    return f"{shlex.quote(_short(python))} -m pip install"


def _short(path: Path) -> str:
    """Returns the path relative to the working directory, if it is in it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # OSError: the working directory is gone
        return str(path)
