"""Clients of AWS's APIs, and the credentials that they sign with.

A client may be used by several threads at once. It sends each request once: were a first one carried out and its answer
lost, then the refusal of a second one would be taken for the truth about both. What only reads goes through
:func:`read`, which asks a second time.
"""

from __future__ import annotations

import functools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    DeferredRefreshableCredentials,
    ReadOnlyCredentials,
)
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError

from cloudgraft.drivers.common.secret_files import SecretFile
from cloudgraft.drivers.ec2.account import AccountOptions
from cloudgraft.drivers.ec2.instances import FIELDS
from cloudgraft.drivers.ec2.lean import LeanLoader, LeanParsers
from cloudgraft.drivers.ec2.limits import limited
from cloudgraft.sdk.errors import AuthenticationError, PreconditionError, UnavailableError
from cloudgraft.sdk.secrecy import hide, unhide

__all__ = ["Client", "Clients", "HiddenLoans", "pages", "read"]

Client = Any  # botocore makes their classes while the program runs
_PAUSE: Final = (0.2, 1.0)  # seconds before a second request
_WHERE: Final = "set accessKeyIdFile and secretAccessKeyFile, or profile, or give this machine a role"
_SERVER_ERROR: Final = 500  # EC2 throttles with 503
_LOANS: Final = 2  # the one that is used, and the one before, with which a request may be under way
_CONNECTIONS: Final = 16  # more than the threads of a driver


class Clients:
    """The clients of one account, made when they are first asked for."""

    def __init__(self, options: AccountOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._session: boto3.session.Session | None = None
        self._made: dict[str, Client] = {}
        self._is_closed = False

    def client(self, service: str = "ec2") -> Client:
        """For one of AWS's APIs."""
        with self._lock:  # a session is not for several threads
            if self._is_closed:
                raise PreconditionError("the driver is closed")
            if service not in self._made:
                self._made[service] = self._new(service)
            return self._made[service]

    def open(self) -> None:
        """Looks for the profile and the files; no call is made."""
        with self._lock:
            self._is_closed = False
            self._opened()

    def close(self) -> None:
        """Closes the connections. Calls that are under way end by themselves."""
        with self._lock:
            made, self._made, self._session = self._made, {}, None
            self._is_closed = True
        for client in made.values():
            client.close()

    def _new(self, service: str) -> Client:
        return limited(
            self._opened().client(
                service,
                region_name=self._options.region,
                endpoint_url=self._options.endpoint_url or None,
                verify=str(self._options.ca_file) if self._options.ca_file else None,
                config=_config(self._options),
            )
        )

    def _opened(self) -> boto3.session.Session:
        if self._session is None:
            core = botocore.session.Session(profile=self._options.profile or None)
            core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
            core.register_component("response_parser_factory", LeanParsers())
            source = _FileCredentials(self._options) if self._options.access_key_id_file else core.get_credentials()
            if self._options.assume_role is not None:
                source = _borrowed(core, source, self._options)
            if source is None:
                raise AuthenticationError(f"no credentials were found for AWS: {_WHERE}")
            core.register_component("credential_provider", CredentialResolver(providers=[_Given(source)]))
            self._session = boto3.session.Session(botocore_session=core, region_name=self._options.region)
        return self._session


def read(call: Callable[..., Any], **parameters: Any) -> Any:
    """The answer to a request that changes nothing; asked again once, where that may help soon."""
    try:
        return call(**parameters)
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) < _SERVER_ERROR:
            raise
    except (ConnectionClosedError, ResponseParserError):
        pass
    time.sleep(random.uniform(*_PAUSE))  # noqa: S311 - it only spreads the load
    return call(**parameters)


def pages(call: Callable[..., Any], parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Every page of an answer."""
    seen = {""}
    token: str | None = None
    while token is None or token:
        page = read(call, **parameters, **({"NextToken": token} if token else {}))
        yield page
        token = str(page.get("NextToken") or "")
        if token and token in seen:
            raise UnavailableError("the pages of AWS's answer lead in a circle")
        seen.add(token)


@functools.cache
def _loader(data_path: str | None) -> Any:
    """The descriptions of AWS's APIs, which are large: read once, whatever the number of sessions."""
    return LeanLoader(create_loader(data_path), {"Instance": FIELDS})


def _config(options: AccountOptions) -> Config:
    return Config(
        connect_timeout=options.connect_timeout.total_seconds(),
        read_timeout=options.timeout.total_seconds(),
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
        user_agent_extra="cloudgraft",
    )


class _Given(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    """The credentials that were found already: they are looked for once."""

    METHOD = "cloudgraft"

    def __init__(self, credentials: Any) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials


class _FileCredentials(Credentials):  # type: ignore[misc]  # botocore has no types
    """A key in files, which may be replaced while the program runs."""

    def __init__(self, options: AccountOptions) -> None:
        files = {
            "accessKeyIdFile": options.access_key_id_file,
            "secretAccessKeyFile": options.secret_access_key_file,
            "sessionTokenFile": options.session_token_file,
        }
        self._files = [SecretFile(path=path, option=option) for option, path in files.items() if path]
        super().__init__(*self._read(), method="cloudgraft-files")

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """As they are in the files now; botocore asks for every request."""
        key, secret, token = self._read()
        return ReadOnlyCredentials(key, secret, token, None)

    def _read(self) -> tuple[str, str, str | None]:
        key, secret, *token = [file.read() for file in self._files]
        return key, secret, token[0] if token else None


def _borrowed(core: botocore.session.Session, source: Any, options: AccountOptions) -> Any:
    """Credentials of a role; botocore takes it on again before they end."""
    role = options.assume_role
    if source is None or role is None:
        raise AuthenticationError(f"assumeRole needs credentials to begin with, and none were found: {_WHERE}")
    settings = {
        "region_name": options.region,
        "endpoint_url": role.endpoint_url or None,
        "verify": str(options.ca_file) if options.ca_file and role.endpoint_url else None,
        "config": _config(options),
    }
    extra: dict[str, Any] = {
        "RoleSessionName": role.session_name,
        "DurationSeconds": int(role.duration.total_seconds()),
    }
    if role.external_id:
        extra["ExternalId"] = role.external_id
    fetcher = AssumeRoleCredentialFetcher(
        lambda *args, **more: limited(core.create_client(*args, **more, **settings)),
        source,
        role.role_arn,
        extra_args=extra,
    )
    return DeferredRefreshableCredentials(HiddenLoans(fetcher.fetch_credentials), "assume-role")


class HiddenLoans:
    """Credentials that are lent, hidden from logs and errors; those before the last ones are over, and are let go."""

    def __init__(self, fetch: Callable[[], dict[str, Any]]) -> None:
        self._fetch = fetch
        self._hidden: deque[tuple[str, ...]] = deque()

    def __call__(self) -> dict[str, Any]:
        """New ones; botocore asks for them one call at a time."""
        credentials = self._fetch()
        secrets = tuple(str(credentials[key]) for key in ("secret_key", "token") if credentials.get(key))
        hide(*secrets)
        self._hidden.append(secrets)
        if len(self._hidden) > _LOANS:
            unhide(*self._hidden.popleft())
        return credentials
