"""Machines of Acme, a cloud with an HTTP API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cloudgraft.plugin import serve
from cloudgraft.sdk import (
    BlockingDriver,
    CloudgraftError,
    DriverTraits,
    HttpCall,
    Idempotency,
    Machine,
    MachineSpec,
    NotFoundError,
    PreconditionError,
    QuotaExceededError,
    UnavailableError,
    hide,
    http_error,
)

OWN_CODES = {"limit_reached": QuotaExceededError, "no_such_server": NotFoundError}


@dataclass(frozen=True, kw_only=True)
class AcmeOptions:
    host: str  # such as api.acme.example:443
    token_file: Path


class AcmeDriver(BlockingDriver):
    """Servers of one Acme account."""

    Options = AcmeOptions
    # Acme makes a second server of one name, and shows a new one in its lists after up to a second.
    traits = DriverTraits(idempotency=Idempotency.NONE, list_delay=timedelta(seconds=1))

    def __init__(self, options: AcmeOptions) -> None:
        self.options = options

    def create(self, spec: MachineSpec) -> Machine:
        order = {"name": spec.name, "size": spec.settings.get("size", "small"), "labels": dict(spec.tags)}
        return machine(self.call("create", "POST", "/v1/servers", {**order, "userData": spec.user_data})["server"])

    def delete(self, machine: Machine) -> None:
        self.call("delete", "DELETE", f"/v1/servers/{quote(machine.machine_id)}")

    def list(self) -> Sequence[Machine]:
        found: list[Machine] = []
        path = "/v1/servers"
        while path:  # every page, or an error: half a list would look like lost machines
            page = self.call("list", "GET", path)
            found += [machine(server) for server in page["servers"]]
            path = f"/v1/servers?after={quote(page['next'])}" if page["next"] else ""
        return found

    def call(self, call: HttpCall, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token()}", "Content-Type": "application/json"}
        link = http.client.HTTPConnection(self.options.host, timeout=30)  # a real cloud: HTTPSConnection
        try:
            link.connect()
        except OSError as error:  # nothing was sent, so nothing was done
            raise UnavailableError(f"{call}: {self.options.host} cannot be reached: {error}") from error
        try:
            link.request(method, path, json.dumps(body) if body else None, headers)
            response = link.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:  # it was sent, and may have been done
            raise http_error(call, None, f"{call}: no answer: {error!r}") from error
        finally:
            link.close()
        if response.status >= 300:
            raise refusal(call, response, content)
        try:
            return json.loads(content or b"{}")
        except ValueError:
            raise http_error(call, response.status, f"{call}: the answer is not JSON") from None

    def token(self) -> str:
        """Reads the file at every call: the token may be replaced while the server runs."""
        try:
            token = self.options.token_file.read_text().strip()
        except OSError as error:
            raise PreconditionError(f"tokenFile cannot be read: {error}") from error
        hide(token)  # from now on it is in no log and no error
        return token


def refusal(call: HttpCall, response: http.client.HTTPResponse, content: bytes) -> CloudgraftError:
    """The error for an answer: by Acme's own code, else by the status."""
    try:
        error = json.loads(content)["error"]
        code, message = error["code"], f"{call}: {error['message']}"
    except (ValueError, TypeError, KeyError):  # a page of a proxy: it does not know what Acme did
        code, message = "", f"{call}: HTTP {response.status}"
    own = OWN_CODES.get(code)
    if own is not None:
        return own(message)
    if response.status == 404:  # not a machine that is gone: the whole API is not there
        return PreconditionError(f"{message}: is `host` right?")
    wait = response.getheader("Retry-After", "")
    return http_error(call, response.status, message, retry_after=float(wait) if wait.isdigit() else None)


def machine(server: Any) -> Machine:
    return Machine(
        name=server["name"],
        machine_id=server["id"],
        provider_id=f"acme://{server['id']}",
        tags=server["labels"],
        created_at=datetime.fromtimestamp(server["created"], UTC),
    )


if __name__ == "__main__":
    serve(AcmeDriver)
