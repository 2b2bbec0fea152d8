"""Defines the options of the driver ``openstack`` and the ``machine:`` section of its groups."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import check_url

__all__ = ["USER_DATA_LIMIT", "Interface", "MachineSettings", "OpenstackOptions"]


# -- the machine settings of node groups -------------------------------------------------------------------------------


AUTO: Final = "auto"  # Nova's word: the project's only network, or one that is made for it
NONE: Final = "none"  # Nova's word: no network at all
LONGEST_METADATA: Final = 255  # characters, of a key and of a value
_METADATA_KEY: Final = re.compile(r"[A-Za-z0-9:._ -]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootVolume:
    """A volume that is made from the image, and that the server boots from."""

    size: int  # in GiB
    type: str = ""  # the volume type, by its name; empty: the cloud's default
    delete_on_termination: bool = True  # no: it stays when the server is deleted, and is yours to remove

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.size >= 1, "size", "must be at least 1 (GiB)")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The servers of one group. What has a name in OpenStack may be said by its name or by its id."""

    shape: str  # the flavour, by its name or its id
    image: str  # by its name, which only one image may have, or its id
    networks: Sequence[str] = ()  # by name or id, in this order; empty or [auto]: the only one; [none]: none at all
    security_groups: Sequence[str] = ()  # by name or id; empty: the project's default
    key_pair: str = ""  # the name of an SSH key that the project has; empty: none
    zone: str = ""  # the availability zone; empty: as the cloud chooses
    server_group: str = ""  # by its name or its id, such as one with the policy anti-affinity; empty: none
    boot_volume: BootVolume | None = None  # a volume to boot from; without it, the flavour's own disk
    config_drive: bool = False  # user data also on a small disk, for networks without a metadata service
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the server, beside our marks

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        for key, value in {"shape": self.shape, "image": self.image}.items():
            flaws.expect(value, key, "must not be empty")
        stands_alone = len(self.networks) < 2 or not {AUTO, NONE} & set(self.networks)
        flaws.expect(stands_alone, "networks", "the words auto and none stand alone, or not at all")
        for key, names in {"networks": self.networks, "securityGroups": self.security_groups}.items():
            flaws.expect("" not in names, key, "must not have empty names")
        check_metadata(flaws, "metadata", self.metadata)
        flaws.raise_any()


def check_metadata(flaws: Flaws, what: str, entries: Mapping[str, str]) -> None:
    """Notes what Nova would refuse, or would break on: nothing is cut."""
    for key, value in entries.items():
        shown = repr(key[:80])
        is_key = _METADATA_KEY.fullmatch(key)
        flaws.expect(is_key, what, f"{shown} is no key for Nova: letters, digits, and : . _ -")
        told = f"the value of {shown} has {len(value)} characters; Nova keeps {LONGEST_METADATA} at most"
        flaws.expect(len(value) <= LONGEST_METADATA, what, told)
        can_be_kept = all(0 < ord(letter) <= 0xFFFF for letter in value)  # its database has three bytes for each
        flaws.expect(can_be_kept, what, f"the value of {shown} has a character that Nova cannot keep")


# -- the cloud ---------------------------------------------------------------------------------------------------------

# Nova takes 65,535 characters, and means those of base64: four for every three bytes.
USER_DATA_LIMIT: Final = 65535 // 4 * 3
_EXAMPLE: Final = "https://keystone.example:5000/v3"


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
    insecure: bool = False  # true: allows http:// to another host; anyone on the network can read it
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
    connect_timeout: timedelta = timedelta(seconds=5)  # to open a connection
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
        """Refuses invalid values, and those that would send secrets in the clear."""
        flaws = Flaws()
        self._check_login(flaws)
        flaws.expect_positive(connectTimeout=self.connect_timeout, timeout=self.timeout)
        is_told = not self.regionalProviderID or self.region
        flaws.expect(is_told, "regionalProviderID", "needs region, which is in it")
        flaws.raise_any()

    def traits(self) -> DriverTraits:
        """Names are not unique in Nova, and it takes no token: a list settles what became of a create."""
        return DriverTraits(
            ownership=Ownership.TAGS,
            idempotency=Idempotency.NONE,
            provider_id_by=self.providerIDBy,
            user_data_limit=USER_DATA_LIMIT,
        )

    def _check_login(self, flaws: Flaws) -> None:
        if self.cloud:
            for key in self._login():
                flaws.tell(key, "and cloud: say who we are here, or in clouds.yaml, not both")
        elif self.config_file is not None:
            flaws.tell("configFile", "needs cloud, the name of one that is in it")
        elif not self.auth_url:
            flaws.tell((), "say who we are: with cloud, a name in a clouds.yaml, or with authUrl and what goes with it")
        else:
            with flaws.at("authUrl"):
                check_url(self.auth_url, example=_EXAMPLE, exposed="the password", insecure=self.insecure)
            self._check_user(flaws)

    def _check_user(self, flaws: Flaws) -> None:
        if self.applicationCredentialID or self.application_credential_secret_file is not None:
            for key in self._login():
                is_part = key.startswith("a")
                flaws.expect(
                    is_part, key, "does not go together with an application credential, which knows its project"
                )
            are_both = self.applicationCredentialID and self.application_credential_secret_file is not None
            needed = "goes together with applicationCredentialSecretFile: give both"
            flaws.expect(are_both, "applicationCredentialID", needed)
            return
        for key, value in {"username": self.username, "passwordFile": self.password_file}.items():
            flaws.expect(value, key, "is missing")
        is_one = bool(self.project) != bool(self.projectID)
        flaws.expect(is_one, "project", "say it by its name (project) or by its id (projectID): one of the two")

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
