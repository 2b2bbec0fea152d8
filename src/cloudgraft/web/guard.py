"""Which roles may use a route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Depends, Request

from cloudgraft.sdk.errors import PermissionDeniedError
from cloudgraft.web.authentication import AUDITED
from cloudgraft.web.identity import Caller

__all__ = ["allowed", "audited", "caller_of", "roles_of", "unaudited"]


def caller_of(request: Request) -> Caller:
    """Who makes this request; authentication has been done before any route is reached."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


def audited(request: Request) -> None:
    """Has a reading request written to the audit log too."""
    request.scope["state"][AUDITED] = True


def unaudited(request: Request) -> None:
    """Keeps a request that comes all the time, such as a heartbeat, out of the audit log, unless it is refused."""
    request.scope["state"][AUDITED] = False


def allowed(*roles: str) -> Any:
    """A dependency that gives the caller, if it has one of these roles.

    ``async def route(caller: Annotated[Caller, allowed("operator")])``
    """
    return Depends(_Allowed(roles))


class _Allowed:
    def __init__(self, roles: tuple[str, ...]) -> None:
        self.roles = roles

    def __repr__(self) -> str:
        return f"allowed{self.roles}"

    async def __call__(self, request: Request) -> Caller:
        caller = caller_of(request)
        if not caller.may(*self.roles):
            raise PermissionDeniedError(
                f"{caller.name} has the role {caller.role}; this needs {' or '.join(self.roles)}: see the clients in "
                "the server's configuration"
            )
        return caller


def roles_of(call: Callable[..., Any] | None) -> tuple[str, ...]:
    """The roles that a dependency asks for; none of another kind of dependency."""
    return call.roles if isinstance(call, _Allowed) else ()
