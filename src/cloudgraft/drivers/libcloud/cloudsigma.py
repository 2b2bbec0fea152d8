"""Adapts CloudSigma.

A create has steps: it clones a drive from the image, creates a server with it, and starts the server. Drive and server
have the machine's name, its marks and the start time from the first step on. So the next create of that name continues
one that died. While that is possible, lists leave out the half-made machine. Later they show it: a server as stopped, a
drive without a server as a failed machine, so that the engine deletes it. A create that is refused midway removes what
it made.

Names are not unique here: of two creates in one process the second waits, and finds what the first one made.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, ClassVar, Final

from cloudgraft.drivers.common.listing import is_younger
from cloudgraft.drivers.common.locks import NamedLocks
from cloudgraft.drivers.libcloud.adapter import Adapter, counted, moment, shape_of, states
from cloudgraft.drivers.libcloud.errors import error_of, refusal
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    Retry,
    UnavailableError,
)

# Libcloud has only partial types.
_cloudsigma: Any = import_module("libcloud.compute.drivers.cloudsigma")
_common: Any = import_module("libcloud.common.cloudsigma")
_exceptions: Any = import_module("libcloud.common.exceptions")

_MADE: Final = "cloudgraft-made"  # when a create began
_USER_DATA: Final = "cloudinit-user-data"
_ENCODED: Final = "base64_fields"
_OTHERS: Final = frozenset({_MADE, _USER_DATA, _ENCODED, "cloudinit-dsmode", "ssh_public_key"})  # not marks
_CORE: Final = 2000  # MHz, as libcloud counts
_GIBIBYTE, _MEBIBYTE = 1024**3, 1024**2
_NOT_FOUND: Final = 404
_LONGEST_TURN: Final = timedelta(seconds=100)  # less than a delete may take
_GOING: Final = "deleting"
_LEFTOVER: Final = "leftover"  # our key of a drive without a server
_LOST: Final = frozenset({"unavailable", "failed", "mounted", _GOING})  # states that a drive of ours must not reach
_STATES: Final = states(
    PENDING="starting",
    RUNNING="running",
    STOPPED="stopping stopped paused",
    FAILED="unavailable",
    DELETING="deleting",
)


class Cloudsigma(Adapter):
    """One account in one location. ``key`` is the user's mail address; the shapes are libcloud's."""

    traits = DriverTraits(list_delay=timedelta(seconds=5), create_timeout=timedelta(minutes=9))
    needs = frozenset({"key", "region"})
    takes = frozenset({"networks", "securityGroups", "sshKeys", "diskSize"})
    takes_one = frozenset({"securityGroups"})  # a firewall policy
    create_limit: ClassVar[timedelta] = timedelta(minutes=8)
    provider_id: ClassVar[str] = "cloudsigma://{id}"
    made_within: ClassVar[timedelta] = timedelta(minutes=20)  # a create, and the one that continues it
    pause: ClassVar[float] = 2.0  # seconds between two polls

    def __init__(self, options: LibcloudOptions) -> None:
        """Refuses a location that libcloud does not know."""
        super().__init__(options)
        if options.region not in _common.API_ENDPOINTS_2_0:
            known = ", ".join(sorted(_common.API_ENDPOINTS_2_0))
            raise InvalidArgumentError(f"CLOUDSIGMA: libcloud has no region {options.region!r}; there is: {known}")
        self._turns = NamedLocks(_LONGEST_TURN)
        self._lock = threading.Lock()
        self._ran: dict[str, float] = {}  # started servers, and when we saw it

    def connect(self, wire: Wire, secret: str) -> Any:
        library = wired(_cloudsigma.CloudSigma_2_0_NodeDriver, wire)
        return library(self.options.key, secret, region=self.options.region)

    def checked(self, spec: MachineSpec) -> MachineSettings:
        settings = super().checked(spec)
        _type_of(settings.shape)
        return settings

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Continues with what exists of this name."""
        with self._turns.take(spec.name):
            server = self._own(_listed(cloud, "/servers/detail/", name=spec.name), spec)
            if server is not None and server["status"] != "stopped":
                return self.machine(server)
            drive = None if server is not None else self._own(_listed(cloud, "/drives/detail/", name=spec.name), spec)
            if server is None and drive is None:
                drive = self._clone(cloud, spec, settings)
            try:
                if drive is not None:
                    server = self._serve(cloud, self._ready(cloud, drive, spec), spec, settings)
                return self._started(cloud, server)
            except Exception as error:  # noqa: BLE001 - libcloud may raise anything
                raise self._undone(cloud, wire, spec, error) from None

    @staticmethod
    def _own(found: Iterable[Any], spec: MachineSpec) -> Any:
        """Returns what was made for this order; anybody may give the same name to something else."""
        for one in found:
            if one["name"] != spec.name:
                continue
            meta = one.get("meta") or {}
            is_marked = _MADE in meta  # a drive may have lost its marks when it was cloned
            if is_marked and any(meta.get(key) != value for key, value in spec.tags.items()):
                raise AlreadyExistsError(f"create {spec.name}: {one['uuid']} has this name, and other marks")
            if one.get("mounted_on") or not (is_marked or "mounted_on" in one):
                raise AlreadyExistsError(f"create {spec.name}: {one['uuid']} has this name, and is not ours")
            return one
        return None

    def _clone(self, cloud: Any, spec: MachineSpec, settings: MachineSettings) -> Any:
        size = (settings.disk_size or _type_of(settings.shape)["disk"]) * _GIBIBYTE
        order = {"name": spec.name, "size": size, "meta": _meta(spec)}
        return _ask(cloud, "POST", f"/drives/{settings.image}/action/", order, do="clone")["objects"][0]

    def _ready(self, cloud: Any, drive: Any, spec: MachineSpec) -> Any:
        """Waits for the clone, and sets its marks: it is not documented whether a clone keeps them.

        They are set at once, since cloning may take minutes and this process may die; if that is refused, at the end.
        """
        with contextlib.suppress(_cloudsigma.CloudSigmaError, _exceptions.BaseHTTPError):
            _mark(cloud, drive, spec)
        while (drive := _ask(cloud, "GET", f"/drives/{drive['uuid']}/"))["status"] != "unmounted":
            if drive["status"] in _LOST:
                raise UnavailableError(f"create {spec.name}: its drive is {drive['status']}")
            time.sleep(self.pause)
        _mark(cloud, drive, spec)
        return drive

    def _serve(self, cloud: Any, drive: Any, spec: MachineSpec, settings: MachineSettings) -> Any:
        kind = _type_of(settings.shape)
        policy = {"firewall_policy": settings.security_groups[0]} if settings.security_groups else {}
        order: dict[str, Any] = {
            "name": spec.name,
            "cpu": kind["cpu"] * _CORE,
            "smp": kind["cpu"],
            "mem": kind["memory"] * _MEBIBYTE,
            "vnc_password": secrets.token_hex(6),  # required; nobody knows it
            "meta": _meta(spec),
            "drives": [{"boot_order": 1, "dev_channel": "0:0", "device": "virtio", "drive": drive["uuid"]}],
            "nics": [
                {"ip_v4_conf": {"conf": "dhcp"}, "model": "virtio", **policy},
                *({"vlan": network, "model": "virtio"} for network in settings.networks),
            ],
        }
        if settings.ssh_keys:
            order["pubkeys"] = list(settings.ssh_keys)
        if spec.user_data:
            encoded = base64.b64encode(spec.user_data.encode()).decode()
            order["meta"] |= {_USER_DATA: encoded, _ENCODED: _USER_DATA}
        return _ask(cloud, "POST", "/servers/", order)["objects"][0]

    def _started(self, cloud: Any, server: Any) -> Machine:
        server = _acted(cloud, server, "start")
        self._remember([server["uuid"]])
        return self.machine({**server, "status": "starting"} if server["status"] == "stopped" else server)

    def _undone(self, cloud: Any, wire: Wire, spec: MachineSpec, error: Exception) -> Exception:
        """Returns the exception for a half-made machine.

        After a final refusal it removes what was made. Otherwise the outcome is unknown, and the next create continues.
        """
        what = f"create {spec.name}"
        final = error if isinstance(error, UnavailableError) else _final_refusal(wire, what, error)
        if final is None:
            found = error_of(error, wire, what)
            return DeadlineError(f"{found.message}; a part of it exists, and the next create continues it")
        try:
            self._remove(cloud, spec.name, "")
        except Exception as second:  # noqa: BLE001 - libcloud may raise anything
            why = error_of(second, wire, "remove it").message
            return DeadlineError(f"{final.message}; and its parts could not be removed: {why}")
        return final

    def delete(self, cloud: Any, machine: Machine) -> None:
        with self._turns.take(machine.name):
            self._remove(cloud, machine.name, machine.machine_id)

    def _remove(self, cloud: Any, name: str, server_id: str) -> None:
        """Deletes the server of that id, or without an id the servers of that name; and its drives without a server.

        It does not delete a drive that somebody else attached to the server: it may be a volume with data.
        """
        found = [_server(cloud, server_id)] if server_id else _listed(cloud, "/servers/detail/", name=name)
        for server in found:
            if server is None or (not server_id and server["name"] != name):
                continue
            if not server_id and server["status"] != "stopped":
                raise ConflictError(f"the server {server['uuid']} was started by another client")
            self._stop(cloud, server)
            is_as_made = [one["boot_order"] for one in server["drives"]] == [1]
            params = {"recurse": "all_drives"} if is_as_made else {}
            _ask(cloud, "DELETE", f"/servers/{server['uuid']}/", **params)
            if params:
                return
        for drive in _listed(cloud, "/drives/detail/", name=name):
            if drive["name"] == name and not drive["mounted_on"] and drive["status"] != _GOING:
                _ask(cloud, "DELETE", f"/drives/{drive['uuid']}/")

    def _stop(self, cloud: Any, server: Any) -> None:
        """Stops a server: a running one cannot be deleted."""
        is_asked = False
        while server is not None and server["status"] not in ("stopped", _GOING):
            if server["status"] in ("running", "paused") and not is_asked:
                _acted(cloud, server, "stop")
                is_asked = True
            else:
                time.sleep(self.pause)
            server = _server(cloud, server["uuid"])

    def nodes(self, cloud: Any) -> Iterable[Any]:
        """Returns all servers, and drives without one. Libcloud would make a request for the drive of each server."""
        servers = _listed(cloud, "/servers/detail/")
        self._remember([server["uuid"] for server in servers if server["status"] != "stopped"])
        names = {server["name"] for server in servers}
        left = [
            {**drive, _LEFTOVER: True}
            for drive in _listed(cloud, "/drives/detail/")
            if _MADE in (drive.get("meta") or {})
            and drive["name"] not in names
            and not drive["mounted_on"]
            and drive["status"] != _GOING
            and not self._is_being_made(drive)
        ]
        return [*(server for server in servers if not self._is_half(server)), *left]

    def _is_being_made(self, thing: Mapping[str, Any]) -> bool:
        made = moment((thing.get("meta") or {}).get(_MADE))
        return made is not None and is_younger(made, self.made_within)

    def _is_half(self, server: Mapping[str, Any]) -> bool:
        """Returns whether it was never started. A server that ran and stopped was."""
        return server["status"] == "stopped" and server["uuid"] not in self._ran and self._is_being_made(server)

    def _remember(self, uuids: Iterable[str]) -> None:
        """Records that they have run; for older ones their age shows it."""
        now = time.monotonic()
        since = now - self.made_within.total_seconds()
        with self._lock:
            self._ran = {uuid: at for uuid, at in self._ran.items() if at >= since} | dict.fromkeys(uuids, now)

    def machine(self, node: Any) -> Machine:
        meta, is_leftover = node.get("meta") or {}, _LEFTOVER in node
        state, reason = _STATES.get(str(node["status"]), MachineState.PENDING), ""
        if is_leftover:
            state, reason = MachineState.FAILED, "its drive exists, but its server never was, or is gone"
        return Machine(
            name=str(node["name"]),
            machine_id=str(node["uuid"]),
            provider_id=None if is_leftover else self.provider_id.format(id=node["uuid"]),
            state=state,
            tags={str(key): str(value) for key, value in meta.items() if key not in _OTHERS},
            created_at=moment(meta.get(_MADE)),
            reason=reason,
            addresses=tuple(_addresses(node)),
        )

    def sizes(self, cloud: Any) -> Iterable[Any]:
        """Reads libcloud's table; libcloud's method also reads prices from a file that anybody may replace."""
        found: Iterable[Any] = _common.INSTANCE_TYPES
        return found

    def shape(self, size: Any) -> Shape:
        return shape_of(size["id"], size["cpu"], size["memory"], size["disk"])


def _type_of(name: str) -> Mapping[str, Any]:
    known: dict[str, Mapping[str, Any]] = {kind["id"]: kind for kind in _common.INSTANCE_TYPES}
    if name not in known:
        raise InvalidArgumentError(f"CLOUDSIGMA has no machine type {name!r} in libcloud; there is: {', '.join(known)}")
    return known[name]


def _meta(spec: MachineSpec) -> dict[str, str]:
    return {**spec.tags, _MADE: datetime.now(UTC).isoformat(timespec="seconds")}


def _mark(cloud: Any, drive: Any, spec: MachineSpec) -> None:
    """Sets our marks on a drive that has none."""
    if _MADE not in drive["meta"]:
        order = {**{key: drive[key] for key in ("name", "size", "media")}, "meta": {**drive["meta"], **_meta(spec)}}
        _ask(cloud, "PUT", f"/drives/{drive['uuid']}/", order)


def _addresses(thing: Mapping[str, Any]) -> Iterable[str]:
    for nic in thing.get("nics") or ():
        for kind in ("ip_v4", "ip_v6"):
            address = (nic.get("runtime") or {}).get(kind)
            if address:
                yield str(address["uuid"])


def _final_refusal(wire: Wire, what: str, error: Exception) -> CloudgraftError | None:
    """Returns the cloud's final refusal of a change; None when a retry may help, or the error is of another call."""
    last = next((exchange for exchange in reversed(wire.exchanges) if exchange.is_change), None)
    if last is None or last.response is None or last.response.ok or last.response.status_code != _code_of(error):
        return None
    found = refusal(last.response, what, is_change=True)
    return found if found.retry is Retry.NO else None


def _acted(cloud: Any, server: Any, action: str) -> Any:
    """Starts or stops a server; returns it as it was before.

    After another client's action the server refuses ours: then it returns the server as it is now.
    """
    try:
        _ask(cloud, "POST", f"/servers/{server['uuid']}/action/", do=action)
    except _cloudsigma.CloudSigmaError:
        now = _server(cloud, server["uuid"])
        if now is None or now["status"] == server["status"]:
            raise
        return now
    return server


def _server(cloud: Any, uuid: str) -> Any:
    """Returns a server; None when it is gone."""
    try:
        return _ask(cloud, "GET", f"/servers/{uuid}/")
    except (_cloudsigma.CloudSigmaError, _exceptions.BaseHTTPError) as error:
        if _code_of(error) == _NOT_FOUND:
            return None
        raise


def _code_of(error: Exception) -> int:
    """Returns the HTTP status of an error of libcloud's; 0 when it has none."""
    return int(getattr(error, "http_code", getattr(error, "code", 0)) or 0)


def _listed(cloud: Any, path: str, **filters: str) -> list[Any]:
    """Reads a list completely. Libcloud asks for all entries at once, and does not check that it got them."""

    def read(_: int, known: Collection[str]) -> tuple[list[Any], int]:
        answer = _ask(cloud, "GET", path, offset=len(known), **filters)
        return [one for one in answer["objects"] if one["uuid"] not in known], answer["meta"]["total_count"]

    return counted(read, key="uuid")


def _ask(cloud: Any, method: str, path: str, data: Any = None, **params: object) -> Any:
    return cloud.connection.request(action=path, method=method, params=params, data=data).object
