"""Calls OpenStack's services: authentication, endpoints and timeouts.

openstacksdk reads clouds.yaml and creates the login from it. The calls are plain HTTP through keystoneauth, which
openstacksdk uses itself. So the driver sees the status of every response, nothing is sent twice unnoticed, and a list
of thousands of servers does not become thousands of unused objects.

- Threads share the login, which is thread-safe, and so one token; each has its own session, and so its own connections.
- keystoneauth repeats a request once after a 401, with a new token: the first one did nothing. All its other retries
  are off. It follows redirects only for reads: after a 302 it would send the same change again, to another server.
- Requests are not logged: they hold user data.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import requests
from keystoneauth1 import exceptions as keystone
from keystoneauth1.session import Session
from openstack.config import OpenStackConfig, loader
from openstack.exceptions import ConfigException
from requests import Response
from requests.exceptions import JSONDecodeError

from cloudgraft.drivers.common.requests_calls import limit_answers
from cloudgraft.drivers.common.secrets import SecretFile, stamp
from cloudgraft.drivers.openstack.errors import error_of_answer, error_of_library
from cloudgraft.drivers.openstack.options import Interface, OpenstackOptions
from cloudgraft.sdk.common.files import is_file
from cloudgraft.sdk.errors import (
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.sdk.secrecy import hide

# -- logins ------------------------------------------------------------------------------------------------------------
# Credentials from a clouds.yaml, or from the options and a secret file; reloaded when a file changes.

_APP: Final = "cloudgraft"
_ELSEWHERE: Final = ("OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE")
_SECRET_WORDS: Final = ("password", "secret", "token", "passcode")
_VERSIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "compute": {"min_version": "2.1", "max_version": "2.latest"},
    "image": {"min_version": "2.0", "max_version": "2.latest"},
    "network": {},  # it may require a login to show its versions
}


class Login:
    """One login, while the files do not change. Threads share it, and so its token."""

    def __init__(self, region: Any) -> None:
        self._region = region
        self._discovered: dict[str, Any] = {}
        for key, value in region.config.get("auth", {}).items():
            if isinstance(value, str) and any(word in key for word in _SECRET_WORDS):
                hide(value)

    def session(self, timeout: float) -> Session:
        """Creates the session of one thread; ``timeout`` applies to tokens and the catalogue."""
        verify, cert = self._region.get_requests_verify_args()
        connections = requests.Session()
        limit_answers(connections)
        return Session(
            session=connections,
            auth=self._region.get_auth(),
            verify=verify,
            cert=cert,
            timeout=timeout,
            app_name=_APP,
            discovery_cache=self._discovered,
        )

    def endpoint(self, session: Session, service: str) -> str:
        """Returns the URL of a service; raises an error of keystoneauth when the catalogue has none."""
        region = self._region.get_region_name(service) or None
        interface = self._region.get_interface(service) or Interface.PUBLIC.value
        found = self._region.get_endpoint(service) or session.get_endpoint(
            service_type=self._region.get_service_type(service),
            service_name=self._region.get_service_name(service),
            interface=interface,
            region_name=region,
            **_VERSIONS[service],
        )
        if not found:
            where = f"in region {region or '(any)'}"
            raise keystone.EndpointNotFound(f"the catalogue has no {interface} endpoint of {service} {where}")
        url = str(found).rstrip("/")
        return f"{url}/v2.0" if service == "network" and not url.endswith("/v2.0") else url


class Logins:
    """Creates the login again whenever a file changes."""

    def __init__(self, options: OpenstackOptions) -> None:
        self._options = options
        self._secret = _secret_file(options)
        self._lock = threading.Lock()
        self._login: Login | None = None
        self._made_of: object = None

    def current(self) -> Login:
        """Returns the login; raises InvalidArgumentError or PreconditionError for unusable files."""
        with self._lock:
            now = self._secret.read() if self._secret is not None else self._stamps()
            if self._login is None or (now is not None and now != self._made_of):
                self._login, self._made_of = self._new(), now
            return self._login

    def _stamps(self) -> object:
        """Returns the stamps of all files with credentials; None while the configured one cannot be read."""
        named = self._options.config_file
        if named is not None:
            return None if stamp(named) is None else (stamp(named), stamp(_secure(named)))
        usual = [*loader.CONFIG_FILES, *loader.SECURE_FILES]
        usual += [os.environ[name] for name in _ELSEWHERE if os.environ.get(name)]
        return tuple(stamp(Path(path)) for path in usual)

    def _new(self) -> Login:
        options = self._options
        if options.config_file is not None and not is_file(options.config_file):
            raise PreconditionError(f"configFile: {options.config_file} does not exist")
        given = {
            "cloud": options.cloud,
            **({} if options.cloud else self._auth()),
            "region_name": options.region,
            "interface": options.interface.value if options.interface is not None else "",
            "cacert": str(options.ca_file or ""),
        }
        try:
            return Login(self._config().get_one(**{key: value for key, value in given.items() if value}))
        except (ConfigException, keystone.ClientException) as error:
            where = f"cloud {options.cloud!r}" if options.cloud else "the login"
            raise InvalidArgumentError(f"{where}: {error}") from None

    def _config(self) -> Any:
        options = self._options
        if not options.cloud:
            return OpenStackConfig(load_yaml_config=False, load_envvars=False, app_name=_APP)
        if options.config_file is None:
            return OpenStackConfig(app_name=_APP)
        files, secure = [str(options.config_file)], [str(_secure(options.config_file))]
        return OpenStackConfig(config_files=files, secure_files=secure, load_envvars=False, app_name=_APP)

    def _auth(self) -> dict[str, Any]:
        options = self._options
        secret = self._secret.read() if self._secret is not None else ""
        if options.applicationCredentialID:
            auth = {
                "auth_url": options.auth_url,
                "application_credential_id": options.applicationCredentialID,
                "application_credential_secret": secret,
            }
            return {"auth_type": "v3applicationcredential", "auth": auth}
        auth = {
            "auth_url": options.auth_url,
            "username": options.username,
            "user_domain_name": options.user_domain,
            "password": secret,
        }
        if options.projectID:
            auth["project_id"] = options.projectID
        else:
            auth |= {"project_name": options.project, "project_domain_name": options.project_domain}
        return {"auth_type": "password", "auth": auth}


def _secure(config_file: Path) -> Path:
    """Returns the file that may hold the secrets of a clouds.yaml."""
    return config_file.with_name("secure.yaml")


def _secret_file(options: OpenstackOptions) -> SecretFile | None:
    files = {
        "passwordFile": options.password_file,
        "applicationCredentialSecretFile": options.application_credential_secret_file,
    }
    return next((SecretFile(path=path, option=option) for option, path in files.items() if path is not None), None)


# -- calls -------------------------------------------------------------------------------------------------------------

# Stein, 2019. Since 2.69 a list shows the servers of a cell that is down as unknown, instead of leaving them out; 2.67
# added the type of a boot volume, 2.61 the extra specs of flavours. Never `latest`: responses would change.
_MICROVERSION: Final = "2.69"
_LOGIN_SECONDS: Final = 20.0  # for each request to Keystone; a login makes two


class Cloud:
    """The services of one project."""

    def __init__(self, options: OpenstackOptions) -> None:
        """Makes no request yet."""
        self._connect = options.connect_timeout.total_seconds()
        self._seconds = options.timeout.total_seconds()
        self._logins = Logins(options)
        self._lock = threading.Lock()
        self._own = threading.local()
        self._sessions: list[Session] = []

    def check(self) -> None:
        """Raises an error when the credentials cannot be used; makes no request."""
        self._logins.current()

    def call(self, *, most: float = math.inf) -> Call:
        """Starts one call of the driver, which takes no more than ``most`` seconds."""
        login = self._logins.current()
        return Call(self._session(login), login, self._connect, time.monotonic() + min(self._seconds, most))

    def close(self) -> None:
        """Closes idle connections."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
            self._own = threading.local()
        for session in sessions:
            session.session.close()

    def _session(self, login: Login) -> Session:
        own = self._own
        session = getattr(own, "session", None)
        if session is None or own.login is not login:
            before, session = session, login.session(timeout=min(self._seconds, _LOGIN_SECONDS))
            own.session, own.login = session, login
            with self._lock:
                self._sessions = [*(one for one in self._sessions if one is not before), session]
            if before is not None:
                before.session.close()  # its login was replaced
        return session


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the driver: one or several requests with a common deadline."""

    _session: Session
    _login: Login
    _connect: float  # seconds
    _deadline: float  # of the monotonic clock

    def get(self, service: str, path: str, what: str, **params: str) -> dict[str, Any]:
        """Reads a JSON object; ``what`` names the action in errors."""
        return _object(self._send(service, "GET", path, what, params=params), what)

    def post(self, service: str, path: str, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Creates something, and returns it."""
        response = self._send(service, "POST", path, what, json=body)
        try:
            return _object(response, what)
        except InternalError as error:  # Nova accepted it, and a list will show the result
            raise DeadlineError(f"{error.message}; whether it was done is not known") from None

    def delete(self, service: str, path: str, what: str) -> None:
        """Deletes something; raises NotFoundError when it does not exist."""
        self._send(service, "DELETE", path, what)

    def _send(self, service: str, method: str, path: str, what: str, **extra: Any) -> Response:
        is_change = method != "GET"
        with _converted(what, is_change=False):  # the token and the catalogue: nothing is sent to the service yet
            url = f"{self._login.endpoint(self._session, service)}{path}"
        left = self._left(what)
        with _converted(what, is_change=is_change):
            response = self._session.request(
                url,
                method,
                microversion=_MICROVERSION if service == "compute" else None,
                microversion_service_type="compute",
                headers={"Accept": "application/json"},
                raise_exc=False,
                log=False,
                redirect=not is_change,
                connect_retries=0,
                status_code_retries=0,
                timeout=(min(self._connect, left), left),
                **extra,
            )
        if not 200 <= response.status_code < 300:
            raise error_of_answer(response, what, is_change=is_change)
        return response

    def _left(self, what: str) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise UnavailableError(f"{what}: the time is over; the cloud responds too slowly. See `timeout`")
        return left


@contextmanager
def _converted(what: str, *, is_change: bool) -> Iterator[None]:
    """Converts errors of keystoneauth to ours."""
    try:
        yield
    except keystone.ClientException as error:
        raise error_of_library(error, what, is_change=is_change) from None


def _object(response: Response, what: str) -> dict[str, Any]:
    try:
        body = response.json()
    except JSONDecodeError:
        raise InternalError(f"{what}: the response is not JSON (HTTP {response.status_code})") from None
    if not isinstance(body, dict):
        raise InternalError(f"{what}: the response is not a JSON object")
    return body
