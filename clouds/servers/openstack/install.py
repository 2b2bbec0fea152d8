"""OpenStack's own programs, in an environment of their own: about 600 MB, made once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from clouds.judge import Tell

__all__ = ["BROKER", "RELEASE", "installed", "missing", "program_at"]

RELEASE: Final = "OpenStack with Nova 34.0.0"
_PACKAGES: Final = (
    "nova==34.0.0",
    "keystone==30.0.0",
    "openstack-placement==16.0.0",
    "glance==33.0.0",
    "neutron==29.0.0",
    "uwsgi==2.0.31",
    "PyMySQL>=1.1",
)
_MADE: Final = "made-of"  # a file that names what is in it, written last
_PROGRAMS: Final = {
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core mariadb-client-core",
    "epmd": "erlang-base",
    "gcc": "gcc libc6-dev",
}
BROKER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # not the one on the PATH, which wants a user of its own


def missing() -> str:
    """What must be installed first."""
    needed = [packages for program, packages in _PROGRAMS.items() if program_at(program) is None]
    packages = {package for names in needed for package in names.split()}
    if not BROKER.exists():
        packages.add("rabbitmq-server")
    if not packages:
        return ""
    return f"MariaDB, RabbitMQ and a C compiler are needed: apt-get install {' '.join(sorted(packages))}"


def program_at(name: str) -> str | None:
    """Where a program is; daemons are not on everybody's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def installed(tell: Tell) -> Path:
    """The environment, made now if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "cloudgraft" / "clouds" / "openstack" / "venv"
    wanted = "\n".join(_PACKAGES)
    made = directory / _MADE
    if made.exists() and made.read_text("utf-8") == wanted:
        return directory
    tell(f"installing OpenStack from PyPI into {directory}, once; this takes some minutes ...")
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True, symlinks=True)
    _pip(directory, "install", "--quiet", "--disable-pip-version-check", *_PACKAGES)
    made.write_text(wanted, "utf-8")
    return directory


def _pip(directory: Path, *words: str) -> None:
    done = subprocess.run(
        [directory / "bin" / "python", "-m", "pip", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"pip failed with Python {sys.version.split()[0]}:\n{done.stderr[-2000:]}")
