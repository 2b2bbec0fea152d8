"""Creates AWS clients: credentials, timeouts, and a faster parser for botocore."""

from __future__ import annotations

import functools
import random
import threading
import time
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import boto3
import botocore.session
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
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
from botocore.parsers import EC2QueryParser, ResponseParserError, ResponseParserFactory
from botocore.utils import parse_timestamp

from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.common.urllib3_calls import LimitedResponse
from cloudgraft.drivers.ec2.instances import FIELDS
from cloudgraft.drivers.ec2.options import AccountOptions
from cloudgraft.sdk.errors import AuthenticationError, PreconditionError, UnavailableError
from cloudgraft.sdk.secrecy import hide, unhide

__all__ = ["Client", "Clients", "HiddenLoans", "LeanLoader", "LeanParsers", "limited", "pages", "read"]


# -- timeouts ----------------------------------------------------------------------------------------------------------
# Clients of AWS's APIs whose timeout is for all of an answer: see :mod:`cloudgraft.drivers.common.urllib3_calls`.


class _Connection(AWSHTTPConnection):  # type: ignore[misc]  # botocore has no types
    response_class = LimitedResponse


class _SecureConnection(AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    response_class = LimitedResponse


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # likewise
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # likewise
    ConnectionCls = _SecureConnection


def limited(client: Any) -> Any:
    """The client, which has made no call yet; its read timeout is for the whole of an answer from now on."""
    session = client._endpoint.http_session  # noqa: SLF001 - there is no public way to its connections
    pools = getattr(session, "_pool_classes_by_scheme", None)  # its managers share it, also those of proxies
    if not isinstance(pools, dict):
        raise PreconditionError("this release of botocore is not known: its answers cannot be given a limit")
    pools.update({"http": _Pool, "https": _SecurePool})
    return client


# -- what botocore need not do -----------------------------------------------------------------------------------------
# botocore without the work that nobody here needs: it is most of the time that a list of thousands takes. By itself it
# turns each of some forty fields of an instance into objects, with all that is in them, of which few are read here; and
# it reads each time with a parser that takes times in any form. It also reads all the XML of an answer in one go, which
# lets no other thread run meanwhile: for a thousand instances that is more than a tenth of a second.

_EC2: Final = ("ec2", "service-2")
_PIECE: Final = 1 << 15  # bytes of XML, which take about a millisecond


class LeanLoader:
    """In the place of botocore's loader of descriptions of APIs: in EC2's, these shapes have these members only."""

    def __init__(self, loader: Any, members: Mapping[str, Collection[str]]) -> None:
        self._loader = loader
        self._members = members

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        """The description of one API."""
        model = self._loader.load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) != _EC2:
            return model
        shapes = dict(model["shapes"])  # the loader keeps what it has read, and gives it to others too
        for name, kept in self._members.items():
            members = {key: value for key, value in shapes[name]["members"].items() if key in kept}
            shapes[name] = {**shapes[name], "members": members}
        return {**model, "shapes": shapes}


class LeanParsers(ResponseParserFactory):  # type: ignore[misc]  # botocore has no types
    """In the place of botocore's own."""

    def __init__(self) -> None:
        super().__init__()
        self.set_parser_defaults(timestamp_parser=_read_time)

    def create_parser(self, protocol_name: str) -> Any:
        """For the answers of one kind of API."""
        return (
            _InPieces(timestamp_parser=_read_time) if protocol_name == "ec2" else super().create_parser(protocol_name)
        )


class _InPieces(EC2QueryParser):  # type: ignore[misc]  # likewise
    """Lets other threads have their turn between two pieces of the XML."""

    def _parse_xml_string_to_dom(self, xml_string: bytes) -> Any:
        parser = ET.XMLParser(encoding=self.DEFAULT_ENCODING)  # noqa: S314 - as botocore reads what AWS answers
        try:
            for start in range(0, len(xml_string), _PIECE):
                parser.feed(xml_string[start : start + _PIECE])
            return parser.close()
        except ET.ParseError:
            return super()._parse_xml_string_to_dom(xml_string)  # which raises what it raises


def _read_time(value: Any) -> datetime:
    """A time: as AWS writes it, or in any other form that botocore knows."""
    if isinstance(value, str) and value.endswith("Z") and "T" in value:
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass  # then botocore says what is wrong with it
    found: datetime = parse_timestamp(value)
    return found


# -- clients -----------------------------------------------------------------------------------------------------------
# A client may be used by several threads at once. It sends each request once: were a first one carried out and its
# answer lost, then the refusal of a second one would be taken for the truth about both. What only reads goes through
# :func:`read`, which asks a second time.

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
