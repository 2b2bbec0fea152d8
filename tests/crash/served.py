"""`cloudgraft serve` as the process under test: the whole program, called by gRPC and by its operators' socket."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cloudgraft.client import Address, CloudConfig, RemoteProvider
from cloudgraft.client.sync import LoopThread
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import Contents
from cloudgraft.store.statements import read_contents, read_events
from cloudgraft.torture.journal_view import open_to_look
from tests.crash.process import Crashed
from tests.crash.setting import CLUSTER, GROUPS, Order
from tests.serve.servers import Server

_KILLED = -signal.SIGKILL
_PATIENCE = timedelta(seconds=20)  # of an autoscaler that does not mind a slow machine


class ServedProgram:
    """One life of the server. There are no traps in it: it is killed from outside. For one thread at a time."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._file = order.directory / "cloudgraft.yaml"
        self._file.write_text(_configuration(order, order.config))
        self._server = Server(self._file)
        self._provider: RemoteProvider | None = None
        self._loop = LoopThread("autoscaler")
        self._own: dict[str, Callable[..., object]] = {
            "enter": lambda _: None,
            "passed": dict,
            "configure": self._configure,
            "pause": lambda group: self._admin("Pause", group),
            "resume": lambda group: self._admin("Resume", group),
            "journal": lambda: (self._contents(), ()),
            "names": self._names,
            "told": self._told,
        }

    def wait_until_up(self) -> None:
        try:
            address = Address.parse(self._server.address)
        except AssertionError:
            if self._server.wait() == _KILLED:
                raise Crashed from None
            raise
        self._provider = RemoteProvider.connect(CloudConfig(address=address, grpc_timeout=_PATIENCE))
        while self._is_waiting():
            time.sleep(0.02)

    def _is_waiting(self) -> bool:
        """At a first start, calls are refused until the clouds were listed."""
        assert self._provider is not None
        try:
            self._loop.run(self._provider.node_groups())
        except UnavailableError as error:
            return "waiting for the first list" in error.message
        return False

    def ask(self, name: str, *arguments: object) -> Any:
        try:
            if name in self._own:
                return self._own[name](*arguments)
            return self._loop.run(getattr(self._provider, name)(*arguments))
        except (UnavailableError, DeadlineError) as error:
            if self._server.wait() == _KILLED:
                raise Crashed from error
            raise AssertionError(f"{name}{arguments} was answered with {error!r}") from error
        except CloudgraftError as error:
            raise AssertionError(f"{name}{arguments} was answered with {error!r}") from error

    def kill(self) -> None:
        os.kill(self._server.pid, signal.SIGKILL)

    def bury(self) -> None:
        code = self._server.wait()
        self._hang_up()
        if code != _KILLED:
            raise AssertionError(f"the server was not killed but ended by itself with {code}: {self._server.log}")

    def stop(self) -> None:
        self._hang_up()
        code = self._server.stop()
        if code != 0:
            raise AssertionError(f"the server ended with {code} when it was stopped: {self._server.log}")

    def abandon(self) -> None:
        self._hang_up()
        self._server.__exit__(None, None, None)

    def _hang_up(self) -> None:
        async def last() -> None:
            if self._provider is not None:
                await self._provider.close()

        self._loop.close(last)

    # -- beside what the autoscaler asks -----------------------------------------------------------------------------

    def _configure(self, config: int) -> None:
        self._file.write_text(_configuration(self._order, config))
        os.kill(self._server.pid, signal.SIGHUP)

    def _admin(self, method: str, group: str) -> None:
        self._loop.run(self._server.admin(method, group=group))

    def _contents(self) -> Contents:
        """What is on disk; what is in memory is its own."""
        with open_to_look(SqliteDatabase(self._order.journal)) as connection:
            assert connection is not None
            return read_contents(connection)

    def _names(self) -> dict[str, str]:
        machines = self._contents().machines
        ids = {record.placeholder: record.name for record in machines}
        return ids | {record.provider_id: record.name for record in machines if record.provider_id}

    def _told(self, kind: str) -> list[str]:
        with open_to_look(SqliteDatabase(self._order.journal)) as connection:
            assert connection is not None
            return [event.machine for event in read_events(connection, EventQuery(kinds=(kind,), limit=1000))]


def _configuration(order: Order, config: int) -> str:
    """The same as :func:`tests.crash.setting.desired_state`, as a file."""
    variant = order.variant
    cloud = {
        "driver": "simulated",
        "url": order.url,
        "timeout": "5s",
        "pageSize": 10,
        "idempotency": variant.idempotency.value,
        "listLag": f"{variant.list_lag}s",
        "engine": {
            "observeEvery": "100ms",
            "listTimeout": "5s",
            "createTimeout": f"{variant.create_timeout}s",
            "deleteTimeout": "500ms",
            "maxCalls": 2,
            "backoff": {"initial": "10ms", "max": "100ms"},
        },
    }
    groups = [
        {"id": group.id, "cloud": "sim", "minSize": group.min_size, "maxSize": group.max_size, "machine": group.machine}
        for group in GROUPS[config]
    ]
    return json.dumps(
        {
            "cluster": CLUSTER,
            "server": {"listen": "127.0.0.1:0"},
            "store": {"path": order.journal.name},
            "engine": {"repair": {"after": "50ms"}, "nodeMemory": "24h"},
            "clouds": {"sim": cloud},
            "nodeGroups": groups,
        }
    )
