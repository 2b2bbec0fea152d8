"""Implements the driver ``openstack``: servers of Nova. One call creates a server with its volume and its ports.

- A server's volume and ports are deleted with it.
- Nova takes no token, and its names are not unique: only a list shows the outcome of a call without a response.
- Our marks are the server's metadata. Nova cannot filter by them, and gets no filter and no page size at all: only then
  does it show the servers of a cell that is down, as unknown; otherwise it silently leaves them out. So a list reads
  all servers of the project, in pages as long as the cloud makes them (1,000 by default).
- A server that is deleted while Nova looks for its host still shows as building for a moment. So a server whose
  deletion Nova has accepted is listed as deleting for half a minute, whatever Nova says.
- Nova accepts a server first and looks for a host later. A server without a host is listed as failed, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from cloudgraft.drivers.common.listing import RecentDeletions
from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.openstack.options import MachineSettings, OpenstackOptions
from cloudgraft.drivers.openstack.servers import Lookups, flavors, machine_of, order_of, pages, provider_id, shape_of
from cloudgraft.drivers.openstack.session import Cloud
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
)
from cloudgraft.validation import read_settings

_TRIES: Final = 3  # of a list
# The time limit of a create or a delete. After two minutes the engine gives up a create, and a list decides: a request
# must not be sent after that.
_CHANGE_SECONDS: Final = 60.0
_LINGERS: Final = timedelta(seconds=30)  # for which a server counts as deleting


class OpenstackDriver(BlockingDriver):
    """Machines in one project of an OpenStack cloud."""

    Options = OpenstackOptions
    MachineSettings = MachineSettings

    def __init__(self, options: OpenstackOptions) -> None:
        """Makes no request yet."""
        self.traits = options.traits()
        self._cloud = Cloud(options)
        self._lookups = Lookups()
        self._options = options
        self._deleted = RecentDeletions(_LINGERS)
        self._provider_region = options.region if options.regionalProviderID else ""

    def start(self) -> None:
        """Reads the credentials; makes no request."""
        self._cloud.check()

    def close(self) -> None:
        """Closes idle connections."""
        self._cloud.close()

    def create(self, spec: MachineSpec) -> Machine:
        """Orders a server. Nova has accepted it when this returns; later lists show whether a host had room."""
        settings = read_settings(MachineSettings, spec.settings)
        call = self._cloud.call(most=_CHANGE_SECONDS)
        order = order_of(spec, settings, self._lookups.find(call, settings))
        try:
            answer = call.post("compute", "/servers", f"create the server {spec.name}", order)
        except CloudgraftError as error:
            if isinstance(error, InvalidArgumentError):
                self._lookups.forget()
            raise error_without(error, spec.user_data) from None
        server = answer.get("server")
        if not isinstance(server, dict) or not server.get("id"):
            raise DeadlineError(f"create the server {spec.name}: the response has no id; the outcome is unknown")
        return Machine(
            name=spec.name,
            machine_id=str(server["id"]),
            provider_id=provider_id(str(server["id"]), self._provider_region),
            state=MachineState.PENDING,
            tags=dict(spec.tags),
        )

    def delete(self, machine: Machine) -> None:
        """Deletes the server; Nova deletes its ports, and its volume unless the settings keep it."""
        if not machine.machine_id:
            raise PreconditionError(f"the machine {machine.name!r} has no id: it cannot be deleted")
        path = f"/servers/{quote(machine.machine_id, safe='')}"
        try:
            self._cloud.call(most=_CHANGE_SECONDS).delete("compute", path, f"delete the server {machine.name}")
        except NotFoundError:
            return
        self._deleted.add(machine.machine_id)

    def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Sets or removes our marks in the server's metadata."""
        path, what = f"/servers/{quote(machine.machine_id, safe='')}/metadata", f"mark the server {machine.name}"
        call = self._cloud.call(most=_CHANGE_SECONDS)
        given = {key: value for key, value in tags.items() if value is not None}
        if given:
            call.post("compute", path, what, {"metadata": given})
        for key in tags.keys() - given.keys():
            with suppress(NotFoundError):  # the server does not have it
                call.delete("compute", f"{path}/{quote(key, safe='')}", what)

    def list(self) -> Sequence[Machine]:
        """Returns the project's servers."""
        found = {str(server.get("id")): machine_of(server, self._provider_region) for server in self._servers()}
        return [self._deleted.shown(machine) for machine in found.values() if machine is not None]

    def _servers(self) -> Sequence[dict[str, Any]]:
        """Reads all servers; starts again when the last server of a page is deleted before the next page is read."""
        call = self._cloud.call()
        for _ in range(_TRIES - 1):
            with suppress(ConflictError):
                return pages(call, "/servers/detail", "servers", "list the servers", is_changing=True)
        return pages(call, "/servers/detail", "servers", "list the servers", is_changing=True)

    def shapes(self) -> Sequence[Shape]:
        """Returns the flavours that the project may use."""
        return [shape_of(flavor, self._options.gpus, self._options.region) for flavor in flavors(self._cloud.call())]
