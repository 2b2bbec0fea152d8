"""How each request shows who we are: an API token, or a ticket that a user with a password gets.

A ticket is good for two hours. It is fetched anew after one, and when a node does not believe it any more.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Final

import requests
from proxmoxer.backends.https import ProxmoxHTTPApiTokenAuth, ProxmoxHTTPAuthBase

from cloudgraft.drivers.common.requests_failures import error_of_request
from cloudgraft.drivers.common.requests_limits import limit_answers
from cloudgraft.drivers.common.secret_files import SecretFile
from cloudgraft.drivers.proxmox.errors import error_of_answer
from cloudgraft.drivers.proxmox.options import ProxmoxOptions
from cloudgraft.sdk.errors import AuthenticationError, InternalError, UnavailableError
from cloudgraft.sdk.secrecy import hide, unhide

__all__ = ["Login"]

_RENEWED: Final = 3600.0  # seconds after which a new ticket is fetched


class Login:
    """Who we are, for all threads and all nodes of a cluster."""

    def __init__(self, options: ProxmoxOptions) -> None:
        self._secret = SecretFile(path=Path(), option="tokenFile")
        if options.token_file is not None:
            self._secret = SecretFile(path=options.token_file, option="tokenFile")
        elif options.password_file is not None:
            self._secret = SecretFile(path=options.password_file, option="passwordFile")
        self._options = options
        self._lock = threading.Lock()
        self._ticket: _Ticket | None = None

    def check(self) -> None:
        """Looks whether there is a secret."""
        self._secret.read()

    def auth(self, base_url: str, network: dict[str, Any]) -> ProxmoxHTTPAuthBase:
        """For one request; fetches a ticket when there is none. ``network`` is how requests are to be made."""
        if self._options.token_file is not None:
            user, _, token = self._options.user.partition("!")
            return ProxmoxHTTPApiTokenAuth(
                user, token, self._secret.read(), timeout=network["timeout"], verify_ssl=network["verify"]
            )
        with self._lock:
            secret = self._secret.read()
            ticket = self._ticket
            if ticket is None or ticket.secret != secret or time.monotonic() - ticket.born > _RENEWED:
                ticket = self._fetched(base_url, network, secret)
                self._forget(self._ticket)
                self._ticket = ticket
            return _TicketAuth(ticket, network)

    def refused(self, auth: ProxmoxHTTPAuthBase) -> bool:
        """A node did not believe it; True when it may do so with a new ticket."""
        if not isinstance(auth, _TicketAuth) or auth.ticket.is_fresh:
            return False
        with self._lock:
            if self._ticket is auth.ticket:
                self._forget(self._ticket)
                self._ticket = None
        return True

    def _fetched(self, base_url: str, network: dict[str, Any], password: str) -> _Ticket:
        what = f"login of {self._options.user}"
        try:
            with requests.Session() as session:
                limit_answers(session)
                response = session.post(
                    f"{base_url}/access/ticket",
                    data={"username": self._options.user, "password": password},
                    allow_redirects=False,
                    **network,
                )
        except requests.RequestException as error:
            raise error_of_request(error, what, is_change=False) from None
        if response.status_code != 200:
            raise error_of_answer(
                what, response.status_code, response.reason, response.headers, response.content, is_change=False
            )
        try:
            data = response.json()["data"]
            if data.get("NeedTFA"):
                raise AuthenticationError(f"{what}: it needs a second factor; take an API token, which needs none")
            ticket = _Ticket(str(data["ticket"]), str(data["CSRFPreventionToken"]), password)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnavailableError(f"{what}: what was answered is no ticket") from None
        hide(ticket.cookie, ticket.csrf)
        return ticket

    @staticmethod
    def _forget(ticket: _Ticket | None) -> None:
        if ticket is not None:
            unhide(ticket.cookie, ticket.csrf)


class _Ticket:
    def __init__(self, cookie: str, csrf: str, secret: str) -> None:
        self.cookie, self.csrf, self.secret = cookie, csrf, secret
        self.born = time.monotonic()
        self.is_fresh = True  # nobody has used it yet


class _TicketAuth(ProxmoxHTTPAuthBase):  # type: ignore[misc]  # proxmoxer has no types
    def __init__(self, ticket: _Ticket, network: dict[str, Any]) -> None:
        super().__init__(timeout=network["timeout"], verify_ssl=network["verify"])
        self.ticket = ticket

    def get_cookies(self) -> Any:
        cookies = requests.cookies.RequestsCookieJar()
        cookies["PVEAuthCookie"] = self.ticket.cookie
        return cookies

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if request.headers is None:
            raise InternalError("a request without headers")
        if request.method != "GET":
            request.headers["CSRFPreventionToken"] = self.ticket.csrf
        return request
