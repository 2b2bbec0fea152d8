"""Lists every cloud of libcloud 3.9: the adapter of those that cloudgraft serves, and why it refuses the others."""

from __future__ import annotations

from typing import Final

from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.errors import InvalidArgumentError

# The module and class of each adapter. Only the adapter of a configured cloud is imported.
ADAPTERS: Final = {
    "EC2": "amazon:Ec2",  # no prices, and the machine types of libcloud 3.9; the driver `ec2` has more
    "GCE": "google:Gce",  # a create waits for Google's operation; no prices
    "OPENSTACK": "nova:Openstack",  # no boot from volume, no server groups; the driver `openstack` has more
    "DIGITAL_OCEAN": "bearer:DigitalOcean",  # no choice of the VPC
    "LINODE": "bearer:Linode",  # no VPC, no firewall; prices of the default region
    "CLOUDSCALE": "bearer:Cloudscale",  # no prices
    # These have limits. Where the create call cannot set marks, machines are identified by their names.
    "VULTR": "bearer:Vultr",  # identified by name; the cloud states prices per month
    "CLOUDSTACK": "cloudstack:Cloudstack",  # identified by name; 2 KiB of user data, since it is in a URL; no prices
    "IKOULA": "cloudstack:Ikoula",  # like CLOUDSTACK
    "RACKSPACE": "nova:Rackspace",  # no zones, no prices
    "BRIGHTBOX": "bearer:Brightbox",  # identified by name; no shapes: set template.capacity; no prices
    "EUCALYPTUS": "amazon:Eucalyptus",  # 5 KiB of user data, no prices
    "OUTSCALE_SAS": "amazon:OutscaleSas",  # 5 KiB of user data; no shapes: set template.capacity; no prices
    "OUTSCALE_INC": "amazon:OutscaleInc",  # like OUTSCALE_SAS
    # Identified by the token of the create call, which is the machine's name; no shapes: set template.capacity; no
    # prices.
    "OUTSCALE": "amazon:Outscale",
    # Only the public Azure; no public addresses; a stopped machine appears as running; no prices.
    "AZURE_ARM": "azure:Azure",
    "CLOUDSIGMA": "cloudsigma:Cloudsigma",  # a create waits until a drive is cloned; libcloud's ten types; no prices
    # The only login is a token; one namespace; no addresses; 256 KiB of user data; no prices.
    "KUBEVIRT": "kubevirt:Kubevirt",
}

_NO_USER_DATA: Final = "libcloud cannot give a machine user data there, so the machine could not join a cluster"
_ENDED: Final = "the service has ended"
_LEGACY: Final = "the platform is no longer offered, and libcloud supports neither user data nor marks for it"
_OWN: Final = "If you need it, write three endpoints or scripts for it (drivers `http` and `exec`)"

REFUSED: Final = {
    "ALIYUN_ECS": f"libcloud silently drops user data and tags there. {_OWN}",
    "SCALEWAY": f"libcloud uses URLs that the vendor has abandoned, and supports no user data. {_OWN}",
    "UPCLOUD": f"{_NO_USER_DATA}; it also leaves storage behind. {_OWN}",
    "KAMATERA": f"{_NO_USER_DATA}. {_OWN}",
    "GRIDSCALE": f"{_NO_USER_DATA}; it also leaves storage and addresses behind. {_OWN}",
    "OVH": f"{_NO_USER_DATA}. Use the driver `openstack`: OVH's machines are OpenStack's",
    "VSPHERE": f"{_NO_USER_DATA}. Use the driver `vsphere`",
    "LIBVIRT": "libcloud cannot create machines there. Use the driver `libvirt`",
    "ONAPP": f"{_NO_USER_DATA}. {_OWN}",
    "ABIQUO": f"{_NO_USER_DATA}. {_OWN}",
    "RIMUHOSTING": f"{_NO_USER_DATA}. {_OWN}",
    "VPSNET": f"{_NO_USER_DATA}; it also hides errors. {_OWN}",
    "GIG_G8": f"its list does not show who owns a machine. {_OWN}",
    "OPENNEBULA": f"libcloud loses the machine's name. {_OWN}",
    "VCLOUD": "libcloud supports only vCloud 5.5 and older, without user data. Use the driver `vsphere`",
    "VCL": f"it lends machines by the hour, and accepts neither user data nor names. {_OWN}",
    "EQUINIXMETAL": f"{_ENDED}, on 30 June 2026",
    "EXOSCALE": f"the vendor has withdrawn the API that libcloud uses. {_OWN}",
    "AURORACOMPUTE": _ENDED,
    "KTUCLOUD": f"{_NO_USER_DATA}. {_OWN}",
    "GANDI": f"{_NO_USER_DATA}. {_OWN}",
    "MAXIHOST": f"{_NO_USER_DATA}; the service is Latitude.sh now, with other URLs. {_OWN}",
    "AZURE": "it is Azure's classic platform, which was retired",
    "DIMENSIONDATA": _LEGACY,
    "NTTA": _LEGACY,
    "INTERNETSOLUTIONS": _LEGACY,
    "NTTCIS": f"{_LEGACY}; its list has only the last page",
    "RACKSPACE_FIRST_GEN": f"{_ENDED}. Use RACKSPACE",
    "TERREMARK": _ENDED,
    "NIMBUS": _ENDED,
    "DUMMY": "it is a fake that reuses ids. Use the driver `simulated`",
}


def provider_of(name: str) -> str:
    """Returns the adapter of a cloud; raises InvalidArgumentError with the reason when it is not served."""
    if name in REFUSED:
        raise InvalidArgumentError(f"provider: {name} is not served: {REFUSED[name]}")
    if name not in ADAPTERS:
        near = nearest(name.upper().replace("-", "_"), [*ADAPTERS, *REFUSED])
        hint = f"did you mean {near}?" if near else f"there is: {', '.join(ADAPTERS)}"
        raise InvalidArgumentError(f"provider: libcloud 3.9 has no cloud {name!r}; {hint}")
    return ADAPTERS[name]
