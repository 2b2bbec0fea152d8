"""Defines the options of the driver ``libcloud`` and the ``machine:`` section of its groups.

Each cloud supports some of them; its ``adapter`` refuses the others. Some of libcloud's drivers silently drop unknown
arguments, so only options named here are passed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.drivers.libcloud.providers import provider_of
from cloudgraft.sdk.driver import ProviderIdBy
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.hosts import check_url

_EXAMPLE: Final = "https://cloud.example/api"


@dataclass(frozen=True, slots=True, kw_only=True)
class LibcloudOptions:
    """One account of one cloud."""

    provider: str  # the cloud, as libcloud names it, such as DIGITAL_OCEAN
    secret_file: Path  # the token, secret key or password; for GCE the JSON key of a service account
    key: str = ""  # who we are, where the secret alone does not say it: an access key, a user, an API key
    region: str = ""  # where machines are made; for GCE a zone
    # Of OPENSTACK and GCE; of KUBEVIRT the namespace, of AZURE_ARM a subscription's id and a resource group: id/group.
    project: str = ""
    domain: str = ""  # of OPENSTACK's user and project; unless said, Default. Of AZURE_ARM the tenant
    # Where the API is: of OPENSTACK its Keystone (…/v3), of CLOUDSTACK, EUCALYPTUS and KUBEVIRT the whole address.
    endpoint: str = ""
    ca_file: Path | None = None  # the CA of the API's certificate; unset: the public ones
    connect_timeout: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=30)  # for the response to one request
    list_timeout: timedelta = timedelta(seconds=55)  # for a list with all its pages; the engine waits a minute
    # For which a new machine may be missing from a list; unless said, what is known of the cloud.
    list_delay: timedelta | None = None
    # The cloud's own cloud controller, if there is one in the cluster; else let cloudgraft write providerIDs.
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it

    def __post_init__(self) -> None:
        """Refuses clouds that are not served, with the reason, and what would send secrets in the clear."""
        flaws = Flaws()
        with flaws.at("provider"):
            provider_of(self.provider)
        flaws.expect_positive(connectTimeout=self.connect_timeout, timeout=self.timeout, listTimeout=self.list_timeout)
        flaws.expect_not_negative(listDelay=self.list_delay)
        if self.endpoint:
            with flaws.at("endpoint"):
                check_url(self.endpoint, example=_EXAMPLE, exposed="the secret")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group. Which of it a cloud takes is on the page about libcloud."""

    shape: str  # the machine type: its name or slug; of KUBEVIRT CPUs and memory, such as 4x8Gi
    # Its id or slug; of GCE its address, such as projects/debian-cloud/global/images/family/debian-12, of AZURE_ARM
    # publisher:offer:sku:version or a whole id.
    image: str
    zone: str = ""  # unless said, the cloud's region, or what the cloud chooses
    networks: Sequence[str] = ()  # ids; of GCE one name; of AZURE_ARM network/subnet
    security_groups: Sequence[
        str
    ] = ()  # of EC2 ids with networks, else names; of VULTR one firewall group; of BRIGHTBOX ids
    ssh_keys: Sequence[
        str
    ] = ()  # as the cloud names them: key pairs, ids, fingerprints; of LINODE, CLOUDSCALE and AZURE_ARM the keys
    disk_size: int | None = None  # of the root disk, in GiB

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        for key, text in {"shape": self.shape, "image": self.image}.items():
            flaws.expect(text.strip(), key, "must be a text that is not empty")
        lists = {"networks": self.networks, "securityGroups": self.security_groups, "sshKeys": self.ssh_keys}
        for key, values in lists.items():
            flaws.expect(all(value.strip() for value in values), key, "must be a list of texts that are not empty")
        is_size = self.disk_size is None or self.disk_size >= 1
        flaws.expect(is_size, "diskSize", "must be a number of GiB, at least 1")
        flaws.raise_any()

    def given(self) -> list[str]:
        """The keys, beside shape and image, that say something."""
        return [
            _camel(one.name)
            for one in dataclasses.fields(self)
            if one.name not in ("shape", "image") and getattr(self, one.name) not in ("", (), [], None)
        ]


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
