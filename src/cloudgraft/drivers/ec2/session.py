"""Creates AWS clients: credentials, timeouts, and a faster parser for botocore."""

from __future__ import annotations

import functools
import random
import threading
import time
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final

import boto3
import botocore.session
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    Credentials,
    DeferredRefreshableCredentials,
    ReadOnlyCredentials,
)
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.loaders import create_loader
from botocore.parsers import EC2QueryParser, ResponseParserError, ResponseParserFactory
from botocore.utils import parse_timestamp

from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.common.urllib3_calls import LimitedResponse
from cloudgraft.drivers.ec2.instances import FIELDS
from cloudgraft.drivers.ec2.options import AccountOptions
from cloudgraft.sdk.errors import AuthenticationError, PreconditionError, UnavailableError
from cloudgraft.sdk.secrecy import hide, unhide

# -- timeouts ----------------------------------------------------------------------------------------------------------
# Makes the timeout apply to the whole response: see :mod:`cloudgraft.drivers.common.urllib3_calls`.


def _limited_pool(pool: Any, connection: Any) -> Any:
    limited_connection = type(connection.__name__, (connection,), {"response_class": LimitedResponse})
    return type(pool.__name__, (pool,), {"ConnectionCls": limited_connection})


_POOLS: Final = {
    "http": _limited_pool(AWSHTTPConnectionPool, AWSHTTPConnection),
    "https": _limited_pool(AWSHTTPSConnectionPool, AWSHTTPSConnection),
}


def limited(client: Any) -> Any:
    """Makes the read timeout of a new client apply to the whole response; returns the client."""
    session = client._endpoint.http_session  # noqa: SLF001 - its connections have no public access
    pools = getattr(session, "_pool_classes_by_scheme", None)  # all its managers share it, also those of proxies
    if not isinstance(pools, dict):
        raise PreconditionError("this release of botocore is not supported: its responses cannot be limited")
    pools.update(_POOLS)
    return client


# -- faster parsing ----------------------------------------------------------------------------------------------------
# Saves work in botocore that takes most of the time of a list of thousands. botocore converts each of some forty fields
# of an instance, of which few are read here, and parses each time with a parser for any format. It also parses all the
# XML of a response at once, and no other thread runs meanwhile: for a thousand instances more than a tenth of a second.

_PIECE: Final = 1 << 15  # bytes of XML, which take about a millisecond


class LeanLoader:
    """Replaces botocore's loader of API descriptions: in EC2's, instances have only the fields that are read."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        """Returns the description of one API."""
        model = self._loader.load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) != ("ec2", "service-2"):
            return model
        whole = model["shapes"]["Instance"]
        lean = {**whole, "members": {key: value for key, value in whole["members"].items() if key in FIELDS}}
        return {**model, "shapes": {**model["shapes"], "Instance": lean}}  # a copy: the loader caches it for others


class LeanParsers(ResponseParserFactory):  # type: ignore[misc]  # botocore has no types
    """Replaces botocore's parsers."""

    def __init__(self) -> None:
        super().__init__()
        self.set_parser_defaults(timestamp_parser=_read_time)

    def create_parser(self, protocol_name: str) -> Any:
        """Creates the parser of one protocol."""
        if protocol_name == "ec2":
            return _InPieces(timestamp_parser=_read_time)
        return super().create_parser(protocol_name)


class _InPieces(EC2QueryParser):  # type: ignore[misc]  # likewise
    """Lets other threads run between two pieces of the XML."""

    def _parse_xml_string_to_dom(self, xml_string: bytes) -> Any:
        parser = ET.XMLParser(encoding=self.DEFAULT_ENCODING)  # noqa: S314 - as botocore itself does
        try:
            for start in range(0, len(xml_string), _PIECE):
                parser.feed(xml_string[start : start + _PIECE])
            return parser.close()
        except ET.ParseError:
            return super()._parse_xml_string_to_dom(xml_string)  # which raises botocore's own error


def _read_time(value: Any) -> datetime:
    """Parses a time as AWS writes it, or in any other format that botocore knows."""
    if isinstance(value, str) and value.endswith("Z") and "T" in value:
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass  # then botocore reports the error
    found: datetime = parse_timestamp(value)
    return found


# -- clients -----------------------------------------------------------------------------------------------------------
# Several threads may use a client at once. It sends each request once: if the first were carried out and its response
# lost, the refusal of a second would count for both. Reads go through :func:`read`, which retries once.

Client = Any  # botocore creates their classes at run time
_PAUSE: Final = (0.2, 1.0)  # seconds before a second request
_WHERE: Final = "set accessKeyIdFile and secretAccessKeyFile, or profile, or give this machine a role"
_SERVER_ERROR: Final = 500  # EC2 throttles with 503
_HIDDEN_AT_ONCE: Final = 2  # the current one, and the one before, which a request in flight may use
_CONNECTIONS: Final = 16  # more than the threads of a driver


class Clients:
    """The clients of one account, created at first use."""

    def __init__(self, options: AccountOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._session: boto3.session.Session | None = None
        self._made: dict[str, Client] = {}
        self._is_closed = False

    def client(self, service: str = "ec2") -> Client:
        """Returns the client of one of AWS's APIs."""
        with self._lock:  # a session is not thread-safe
            if self._is_closed:
                raise PreconditionError("the driver is closed")
            if service not in self._made:
                self._made[service] = self._new(service)
            return self._made[service]

    def open(self) -> None:
        """Looks for the profile and the files; makes no call."""
        with self._lock:
            self._is_closed = False
            self._opened()

    def close(self) -> None:
        """Closes the connections. Calls in flight end by themselves."""
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
                source = _role_credentials(core, source, self._options)
            if source is None:
                raise AuthenticationError(f"no credentials were found for AWS: {_WHERE}")
            # With the credentials that were found already, so that botocore does not search again.
            core.register_component("credential_provider", SimpleNamespace(load_credentials=lambda: source))
            self._session = boto3.session.Session(botocore_session=core, region_name=self._options.region)
        return self._session


def read(call: Callable[..., Any], **parameters: Any) -> Any:
    """Sends a request that changes nothing; retries it once where that may help soon."""
    try:
        return call(**parameters)
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) < _SERVER_ERROR:
            raise
    except (ConnectionClosedError, ResponseParserError):
        pass
    time.sleep(random.uniform(*_PAUSE))  # noqa: S311 - it only spreads the load
    return call(**parameters)


def parts(names: Iterable[str], size: int) -> list[list[str]]:
    """Splits names, each once, into parts that one request may name."""
    unique = list(dict.fromkeys(names))
    return [unique[start : start + size] for start in range(0, len(unique), size)]


def pages(call: Callable[..., Any], parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Yields every page of a response."""
    seen = {""}
    token: str | None = None
    while token is None or token:
        page = read(call, **parameters, **({"NextToken": token} if token else {}))
        yield page
        token = str(page.get("NextToken") or "")
        if token and token in seen:
            raise UnavailableError("the pages of AWS's response repeat: a page names one that was read already")
        seen.add(token)


@functools.cache
def _loader(data_path: str | None) -> Any:
    """Returns the loader of AWS's API descriptions, which are large: all sessions share one."""
    return LeanLoader(create_loader(data_path))


def _config(options: AccountOptions) -> Config:
    return Config(
        connect_timeout=options.connect_timeout.total_seconds(),
        read_timeout=options.timeout.total_seconds(),
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
        user_agent_extra="cloudgraft",
    )


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
        """Returns the current content of the files; botocore asks for every request."""
        key, secret, token = self._read()
        return ReadOnlyCredentials(key, secret, token, None)

    def _read(self) -> tuple[str, str, str | None]:
        key, secret, *token = [file.read() for file in self._files]
        return key, secret, token[0] if token else None


def _role_credentials(core: botocore.session.Session, source: Any, options: AccountOptions) -> Any:
    """Returns credentials of a role; botocore renews them before they expire."""
    role = options.assume_role
    if source is None or role is None:
        raise AuthenticationError(f"assumeRole needs credentials to begin with, and none were found: {_WHERE}")
    settings = {
        "region_name": options.region,
        "endpoint_url": role.endpoint_url or None,
        "verify": str(options.ca_file) if options.ca_file and role.endpoint_url else None,
        "config": _config(options),
    }
    extra = {"RoleSessionName": role.session_name, "DurationSeconds": int(role.duration.total_seconds())}
    if role.external_id:
        extra["ExternalId"] = role.external_id
    fetcher = AssumeRoleCredentialFetcher(
        lambda *args, **more: limited(core.create_client(*args, **more, **settings)),
        source,
        role.role_arn,
        extra_args=extra,
    )
    return DeferredRefreshableCredentials(HiddenCredentials(fetcher.fetch_credentials), "assume-role")


class HiddenCredentials:
    """Hides temporary credentials from logs and errors, and unhides expired ones."""

    def __init__(self, fetch: Callable[[], dict[str, Any]]) -> None:
        self._fetch = fetch
        self._hidden: deque[tuple[str, ...]] = deque()

    def __call__(self) -> dict[str, Any]:
        """Fetches new credentials; botocore makes one such call at a time."""
        credentials = self._fetch()
        secrets = tuple(str(credentials[key]) for key in ("secret_key", "token") if credentials.get(key))
        hide(*secrets)
        self._hidden.append(secrets)
        if len(self._hidden) > _HIDDEN_AT_ONCE:
            unhide(*self._hidden.popleft())
        return credentials
