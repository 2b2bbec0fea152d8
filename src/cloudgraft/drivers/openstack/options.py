"""What a configuration file may say about an OpenStack cloud: who we are there, and where."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudgraft.drivers.openstack.settings import MachineSettings
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host

__all__ = ["USER_DATA_LIMIT", "Interface", "MachineSettings", "OpenstackOptions"]

# Nova takes 65,535 characters, and means those of base64: four for every three bytes.
USER_DATA_LIMIT: Final = 65535 // 4 * 3
_FORM: Final = "write it like https://keystone.example:5000/v3"


class Interface(enum.Enum):
    """Which of a service's addresses is used."""

    PUBLIC = "public"
    INTERNAL = "internal"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenstackOptions:
    """One project of one cloud: by its name in a clouds.yaml, or by what is said here."""

    cloud: str = ""  # its name in clouds.yaml; then nothing is said here of who we are
    config_file: Path | None = None  # that clouds.yaml; without it, where OpenStack's own tools look for it
    auth_url: str = ""  # the address of Keystone, such as https://keystone.example:5000/v3
    insecure: bool = False  # yes: http:// to another host is fine, though everybody on the way can read it
    username: str = ""  # with passwordFile, and project or projectID
    user_domain: str = "Default"  # in which the user is, by name
    project: str = ""  # its name; or its id as projectID
    project_domain: str = "Default"  # in which the project is, by name
    # In the place of the project's name and domain.
    projectID: str = ""  # noqa: N815 - spelt as the other ids are
    password_file: Path | None = None  # with the user's password; read again when it changes
    # In the place of user, password and project: the id of an application credential.
    applicationCredentialID: str = ""  # noqa: N815 - the same
    application_credential_secret_file: Path | None = None  # with its secret; read again when it changes
    region: str = ""  # its name; empty: the one of clouds.yaml, or the only one that there is
    interface: Interface | None = (
        None  # which of a service's addresses is used; without it, as clouds.yaml says, else public
    )
    ca_file: Path | None = (
        None  # with the certificate of who signed theirs; without it, as clouds.yaml says, else a public authority
    )
    connect_timeout: timedelta = timedelta(seconds=5)  # until a service answers at all
    timeout: timedelta = timedelta(
        seconds=50
    )  # for a list with all its pages; a create or a delete has a minute at most
    # PCI aliases of flavours, and VGPU, as the resources that Kubernetes knows: {a100: nvidia.com/gpu}
    gpus: Mapping[str, str] = field(default_factory=dict)
    # For openstack://REGION/ID, where the cloud controller was told to write that; else it is openstack:///ID.
    regionalProviderID: bool = False  # noqa: N815 - spelt as Kubernetes spells it
    # Who writes the providerID on the node. OpenStack's own cloud controller writes the same, where there is one.
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def __post_init__(self) -> None:
        """Refuses what can never work, and what would send secrets in the clear."""
        problems = self._problems_with_login()
        for key, value in {"connectTimeout": self.connect_timeout, "timeout": self.timeout}.items():
            if value <= timedelta(0):
                problems.append(f"{key} must be more than zero")
        if self.regionalProviderID and not self.region:
            problems.append("regionalProviderID needs region, which is in it")
        if problems:
            raise InvalidArgumentError("; ".join(problems))

    def traits(self) -> DriverTraits:
        """Names are not unique in Nova, and it takes no token: a list settles what became of a create."""
        return DriverTraits(
            ownership=Ownership.TAGS,
            idempotency=Idempotency.NONE,
            provider_id_by=self.providerIDBy,
            user_data_limit=USER_DATA_LIMIT,
        )

    def _problems_with_login(self) -> list[str]:
        if self.cloud:
            return [f"{key} and cloud: say who we are here, or in clouds.yaml, not both" for key in self._login()]
        if self.config_file is not None:
            return ["configFile needs cloud, the name of one that is in it"]
        if not self.auth_url:
            return ["say who we are: with cloud, a name in a clouds.yaml, or with authUrl and what goes with it"]
        return [*_problems_with_url(self.auth_url, insecure=self.insecure), *self._problems_with_user()]

    def _problems_with_user(self) -> list[str]:
        if self.applicationCredentialID or self.application_credential_secret_file is not None:
            strange = [key for key in self._login() if not key.startswith("a")]
            if strange:
                return [f"{strange[0]} does not go together with an application credential, which knows its project"]
            if not self.applicationCredentialID or self.application_credential_secret_file is None:
                return ["applicationCredentialID and applicationCredentialSecretFile belong together: give both"]
            return []
        needed = {"username": self.username, "passwordFile": self.password_file}
        problems = [f"{key} is missing" for key, value in needed.items() if not value]
        if bool(self.project) == bool(self.projectID):
            problems.append("say the project by its name (project) or by its id (projectID): one of the two")
        return problems

    def _login(self) -> list[str]:
        """The keys that say who we are, as far as they are given."""
        given = {
            "authUrl": self.auth_url,
            "username": self.username,
            "project": self.project,
            "projectID": self.projectID,
            "passwordFile": self.password_file,
            "applicationCredentialID": self.applicationCredentialID,
            "applicationCredentialSecretFile": self.application_credential_secret_file,
        }
        return [key for key, value in given.items() if value]


def _problems_with_url(url: str, *, insecure: bool) -> list[str]:
    """Without repeating it: somebody may have put a password into it."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return [f"authUrl is not an address; {_FORM}"]
    if parts.scheme not in ("http", "https") or not host:
        return [f"authUrl is not the address of Keystone; {_FORM}"]
    if parts.username is not None or parts.password is not None:
        return ["authUrl must be without credentials: put them into a file, see passwordFile"]
    if parts.scheme == "http" and not insecure and not is_loopback_host(host):
        why = "authUrl is http to another host: the password would be readable on the way. Use https, or say "
        return [f"{why}`insecure: true` if that is really what you want"]
    return []
