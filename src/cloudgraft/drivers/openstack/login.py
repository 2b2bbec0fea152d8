"""Who we are in a cloud: from a clouds.yaml, or from the options and a file with a secret; anew when a file changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import requests
from keystoneauth1 import exceptions as keystone
from keystoneauth1.session import Session
from openstack.config import OpenStackConfig, loader
from openstack.exceptions import ConfigException

from cloudgraft.drivers.common.requests_limits import limit_answers
from cloudgraft.drivers.common.secret_files import SecretFile, stamp
from cloudgraft.drivers.openstack.options import Interface, OpenstackOptions
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.sdk.files import is_file
from cloudgraft.sdk.secrecy import hide

__all__ = ["Login", "Logins"]

_APP: Final = "cloudgraft"
_ELSEWHERE: Final = ("OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE")
_SECRET_WORDS: Final = ("password", "secret", "token", "passcode")


class Login:
    """One login, for as long as the files say the same. Threads share it, and with it the token."""

    def __init__(self, region: Any) -> None:
        self._region = region
        self._discovered: dict[str, Any] = {}
        for key, value in region.config.get("auth", {}).items():
            if isinstance(value, str) and any(word in key for word in _SECRET_WORDS):
                hide(value)

    def session(self, timeout: float) -> Session:
        """Connections for one thread; ``timeout`` is for tokens and the catalogue."""
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

    def endpoint(self, session: Session, service: str, versions: Mapping[str, Any]) -> str:
        """Where a service is; raises an error of keystoneauth when the catalogue does not know."""
        if override := self._region.get_endpoint(service):
            return str(override)
        region = self._region.get_region_name(service) or None
        interface = self._region.get_interface(service) or Interface.PUBLIC.value
        found = session.get_endpoint(
            service_type=self._region.get_service_type(service),
            service_name=self._region.get_service_name(service),
            interface=interface,
            region_name=region,
            **versions,
        )
        if not found:
            raise keystone.EndpointNotFound(
                f"the catalogue has no {interface} address of {service} in region {region or '(any)'}"
            )
        return str(found)


class Logins:
    """The login as the files have it now."""

    def __init__(self, options: OpenstackOptions) -> None:
        self._options = options
        self._secret = _secret_file(options)
        self._lock = threading.Lock()
        self._login: Login | None = None
        self._made_of: object = None

    def current(self) -> Login:
        """The same one until a file has changed. Raises InvalidArgumentError or PreconditionError."""
        with self._lock:
            now = self._secret.read() if self._secret is not None else self._stamps()
            if self._login is None or (now is not None and now != self._made_of):
                self._login, self._made_of = self._made(), now
            return self._login

    def _stamps(self) -> object:
        """Of all files that may say who we are; None while the one that is named cannot be looked at."""
        named = self._options.config_file
        if named is not None:
            return None if stamp(named) is None else (stamp(named), stamp(_secure(named)))
        usual = [*loader.CONFIG_FILES, *loader.SECURE_FILES]
        usual += [os.environ[name] for name in _ELSEWHERE if os.environ.get(name)]
        return tuple(stamp(Path(path)) for path in usual)

    def _made(self) -> Login:
        options = self._options
        if options.config_file is not None and not is_file(options.config_file):
            raise PreconditionError(f"configFile: {options.config_file} does not exist")
        given: dict[str, Any] = {"cloud": options.cloud} if options.cloud else {"auth": self._auth()}
        if not options.cloud:
            given["auth_type"] = "v3applicationcredential" if options.applicationCredentialID else "password"
        extra = {
            "region_name": options.region,
            "interface": options.interface.value if options.interface is not None else "",
            "cacert": str(options.ca_file or ""),
        }
        given.update({key: value for key, value in extra.items() if value})
        try:
            return Login(self._config().get_one(**given))
        except (ConfigException, keystone.ClientException) as error:
            where = f"cloud {options.cloud!r}" if options.cloud else "the login"
            raise InvalidArgumentError(f"{where}: {error}") from None

    def _config(self) -> Any:
        options = self._options
        if not options.cloud:
            return OpenStackConfig(load_yaml_config=False, load_envvars=False, app_name=_APP)
        if options.config_file is None:
            return OpenStackConfig(app_name=_APP)
        beside = _secure(options.config_file)
        return OpenStackConfig(
            config_files=[str(options.config_file)], secure_files=[str(beside)], load_envvars=False, app_name=_APP
        )

    def _auth(self) -> dict[str, str]:
        options = self._options
        secret = self._secret.read() if self._secret is not None else ""
        if options.applicationCredentialID:
            return {
                "auth_url": options.auth_url,
                "application_credential_id": options.applicationCredentialID,
                "application_credential_secret": secret,
            }
        auth = {
            "auth_url": options.auth_url,
            "username": options.username,
            "user_domain_name": options.user_domain,
            "password": secret,
        }
        if options.projectID:
            return {**auth, "project_id": options.projectID}
        return {**auth, "project_name": options.project, "project_domain_name": options.project_domain}


def _secure(config_file: Path) -> Path:
    """Where the secrets of a clouds.yaml may be."""
    return config_file.with_name("secure.yaml")


def _secret_file(options: OpenstackOptions) -> SecretFile | None:
    if options.password_file is not None:
        return SecretFile(path=options.password_file, option="passwordFile")
    if options.application_credential_secret_file is not None:
        return SecretFile(path=options.application_credential_secret_file, option="applicationCredentialSecretFile")
    return None
