"""MariaDB with an empty database for each service."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from clouds.servers.openstack.install import program_at
from clouds.servers.openstack.site import Site
from e2e.processes import Program
from e2e.waiting import until

__all__ = ["database"]

_NAMES: Final = ("keystone", "placement", "glance", "neutron", "nova_api", "nova_cell0", "nova")


@contextmanager
def database(site: Site) -> Iterator[None]:
    """Runs it."""
    data, user = site.directory("database"), f"--user={getpass.getuser()}"
    install = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", f"--datadir={data}", user]
    subprocess.run([_at("mariadb-install-db"), *install], check=True, capture_output=True)
    start = data / "start.sql"
    start.write_text("".join(f"CREATE DATABASE {name} CHARACTER SET utf8mb3;\n" for name in _NAMES), "utf-8")
    ready = data / "ready.pid"
    words = [
        "--no-defaults",
        user,
        f"--datadir={data}",
        f"--socket={data / 's'}",
        f"--port={site.ports['database']}",
        "--bind-address=127.0.0.1",
        f"--pid-file={ready}",
        f"--init-file={start}",
        "--skip-name-resolve",
        "--max-connections=500",
        # It is thrown away in the end: nothing needs to outlive a power cut.
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--skip-log-bin",
    ]
    program = Program("mariadbd", [_at("mariadbd"), *words], site.log("mariadbd"))
    program.start()
    try:
        until(ready.exists, "MariaDB is up", seconds=60, check=program.check)
        yield
    finally:
        program.stop()


def _at(name: str) -> str:
    found = program_at(name)
    assert found is not None, f"{name} is not there, though `missing` has looked"
    return found
