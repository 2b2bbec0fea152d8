"""Adapts Google Compute Engine, with the key of a service account.

Libcloud guesses how to log in, and with a wrong key opens an interactive prompt; it stores tokens in a file in the home
directory. Here only the key is used, and tokens stay in memory. A create is one call, which starts an operation. Its
end shows whether there was room: libcloud waits for it, and so do we. Labels are marks.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from cloudgraft.drivers.common.label_text import GOOGLE, from_pairs, pairs
from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.libcloud.adapter import Adapter, moment, pages, shape_of, states
from cloudgraft.drivers.libcloud.errors import job_failure, said
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError, UnavailableError
from cloudgraft.sdk.secrecy import hide, unhide

# Libcloud has only partial types.
_base: Any = import_module("libcloud.common.base")
_login: Any = import_module("libcloud.common.google")
_gce: Any = import_module("libcloud.compute.drivers.gce")

_SCOPE: Final = "https://www.googleapis.com/auth/compute"
_HIDDEN_AT_ONCE: Final = 2  # hidden tokens: the current one, and the one before, which an error may still contain
_SPARE: Final = 60.0  # seconds before its end at which a token is renewed
_STATES: Final = states(
    PENDING="PROVISIONING STAGING",
    RUNNING="RUNNING REPAIRING",
    DELETING="STOPPING",
    STOPPED="TERMINATED STOPPED SUSPENDING SUSPENDED",
)


class Gce(Adapter):
    """One project. ``region`` is the zone of new machines, unless their group sets another."""

    traits = DriverTraits(
        idempotency=Idempotency.UNIQUE_NAME, user_data_limit=256 * 1024, create_timeout=timedelta(minutes=4)
    )
    needs = frozenset({"project"})
    may = frozenset({"region"})
    takes = frozenset({"zone", "networks", "diskSize"})
    names = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
    create_limit: ClassVar[timedelta] = timedelta(seconds=200)

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request yet: the first request gets a token."""
        mail, key = _account(secret)
        more = {"connectionCls": _Connection, "auth_type": "SA", "ex_get_node": lambda *_: None}
        library = type("Gce", (_gce.GCENodeDriver,), more)
        made = wired(library, wire)(mail, key, project=self.options.project, credential_file="unused")
        login = type("Login", (_login.GoogleServiceAcctAuthConnection,), {"conn_class": staticmethod(wire.connection)})
        made.connection.oauth2_credential = _Token(login(mail, key, [_SCOPE]))
        return made

    def secret_file(self) -> SecretFile:
        return _KeyFile(path=self.options.secret_file, option="secretFile")

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Creates it in one call, and polls the operation. Passes URLs, so that libcloud looks nothing up."""
        zone = self.place(settings)
        base = f"projects/{self.options.project}"
        network = settings.networks[0] if settings.networks else "default"
        try:
            cloud.create_node(
                name=spec.name,
                size=_link(f"zones/{zone}/machineTypes/{settings.shape}"),
                image=_link(settings.image),
                location=_link(zone),
                ex_network=_link(f"{base}/global/networks/{network}"),
                ex_metadata={"user-data": spec.user_data} if spec.user_data else None,
                ex_labels=pairs(spec.tags, GOOGLE),
                ex_disk_type=_link(f"{base}/zones/{zone}/diskTypes/pd-balanced"),
                ex_disk_size=settings.disk_size,
                ex_service_accounts=[],
            )
        except _login.GoogleBaseError as error:
            raise _failed(wire, f"create {spec.name}") or error from None
        return Machine(
            name=spec.name,
            machine_id=f"{zone}/{spec.name}",
            provider_id=self._provider_id(zone, spec.name),
            state=MachineState.PENDING,
            tags=dict(spec.tags),
        )

    def delete(self, cloud: Any, machine: Machine) -> None:
        """Deletes it with its disk; does not wait for the end."""
        zone, _, name = machine.machine_id.rpartition("/")
        cloud.destroy_node(SimpleNamespace(name=name, extra={"zone": _link(zone)}), ex_sync=False)

    def nodes(self, cloud: Any) -> Iterable[Any]:
        """Yields all instances of the project. Libcloud's list also reads all disks, and ignores unreachable zones."""
        for place, items in _pages(cloud, "/aggregated/instances", lambda page: page.get("items", {}).items()):
            if (items.get("warning") or {}).get("code") == "UNREACHABLE":
                raise UnavailableError(f"list the machines: Google cannot reach {place}, so the list is incomplete")
            yield from items.get("instances", ())

    def machine(self, node: Any) -> Machine:
        zone, name = str(node["zone"]).rpartition("/")[2], str(node["name"])
        state = _STATES.get(str(node["status"]), MachineState.PENDING)
        cards = node.get("networkInterfaces", ())
        outside = [access["natIP"] for card in cards for access in card.get("accessConfigs", ()) if access.get("natIP")]
        return Machine(
            name=name,
            machine_id=f"{zone}/{name}",
            provider_id=self._provider_id(zone, name),
            state=state,
            tags=from_pairs(node.get("labels", {}), GOOGLE),
            created_at=moment(node.get("creationTimestamp")),
            addresses=(*(card["networkIP"] for card in cards if card.get("networkIP")), *outside),
        )

    def _provider_id(self, zone: str, name: str) -> str:
        """Returns the providerID that Google's cloud controller writes."""
        return f"gce://{self.options.project}/{zone}/{name}"

    def sizes(self, cloud: Any) -> Iterable[Any]:
        if not self.options.region:
            raise InvalidArgumentError("GCE: set region to the zone whose machine types you want")
        return _pages(cloud, f"/zones/{self.options.region}/machineTypes", lambda page: page.get("items", ()))

    def shape(self, size: Any) -> Shape:
        zone = {"topology.kubernetes.io/zone": self.options.region}
        return shape_of(size["name"], size["guestCpus"], size["memoryMb"], labels=zone)


def _pages(cloud: Any, path: str, parse: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    def read(token: str) -> tuple[Iterable[Any], str]:
        params = {"maxResults": 500, **({"pageToken": token} if token else {})}
        page = cloud.connection.request(path, method="GET", params=params).object
        return parse(page), page.get("nextPageToken", "")

    return pages(read)


def _link(address: str) -> Any:
    """Builds what libcloud accepts as an object of Google's, without a request."""
    return SimpleNamespace(name=address, extra={"selfLink": address})


def _failed(wire: Wire, what: str) -> Exception | None:
    """Returns why an operation failed. The response that shows it is a success, for which libcloud raises an error."""
    last = wire.last
    if last is None or last.is_change or last.response is None or not last.response.ok:
        return None
    operation = last.response.json()
    code, text = said(json.dumps(operation.get("error", {})).encode())
    return job_failure(what, code, text, operation.get("httpErrorStatusCode"))


# -- login -------------------------------------------------------------------------------------------------------------


def _account(secret: str) -> tuple[str, str]:
    try:
        data = json.loads(secret)
        mail, key = str(data["client_email"]), str(data["private_key"])
    except (ValueError, TypeError, KeyError):
        raise PreconditionError(
            "secretFile is not the JSON key of a service account: it needs client_email and private_key"
        ) from None
    hide(key, *key.splitlines())
    return mail, key


class _KeyFile(SecretFile):
    """A JSON document of several lines."""

    __slots__ = ()

    def _checked(self, text: str) -> str:
        _account(text)
        return text


class _Token:
    """Replaces libcloud's credential."""

    def __init__(self, login: Any) -> None:
        self._login = login
        self._value = ""
        self._hidden: deque[str] = deque()
        self._until = 0.0

    @property
    def access_token(self) -> str:
        """A token that remains valid for a while."""
        if time.monotonic() >= self._until:
            answer = self._login.get_new_token()
            self._value = str(answer["access_token"])
            hide(self._value)
            self._hidden.append(self._value)
            if len(self._hidden) > _HIDDEN_AT_ONCE:
                unhide(self._hidden.popleft())
            self._until = time.monotonic() + float(answer.get("expires_in", 0)) - _SPARE
        return self._value


class _Connection(_gce.GCEConnection):  # type: ignore[misc]  # has only partial types
    oauth2_credential: Any

    def __init__(self, user_id: str, key: str, secure: bool, project: str = "", **kwargs: Any) -> None:  # noqa: FBT001 - as libcloud calls it
        """Does what libcloud does, but without its own login, which calls Google at once."""
        for unused in ("auth_type", "credential_file", "scopes"):
            kwargs.pop(unused, None)
        _base.ConnectionUserAndKey.__init__(self, user_id, key, secure=secure, **kwargs)
        self.request_path = f"/compute/{_gce.API_VERSION}/projects/{project}"
        self.gce_params = None
