"""Lists every cloud of libcloud 3.9 and whether cloudgraft serves it; others are refused at the start."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.nearest import nearest


class Served(enum.Enum):
    """How much of it."""

    FULL = "full"
    LIMITED = "limited"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class Provider:
    """One cloud of libcloud's."""

    served: Served
    why: str = ""  # what it lacks, or why it is not served
    instead: str = ""  # what to use


def _full(why: str = "", instead: str = "") -> Provider:
    return Provider(Served.FULL, why, instead)


def _limited(why: str, instead: str = "") -> Provider:
    return Provider(Served.LIMITED, why, instead)


def _not(why: str, instead: str = "") -> Provider:
    return Provider(Served.NOT, why, instead)


_NO_USER_DATA: Final = "libcloud has no way to give a machine user data there, so that it could not join a cluster"
_GONE: Final = "the service has ended"
_LEGACY: Final = "the platform is not offered any more, and libcloud has neither user data nor marks for it"
_HTTP: Final = "write three endpoints or scripts for it (drivers `http` and `exec`)"
_BY_NAME: Final = "it keeps no marks that libcloud can set in the call that creates: ours are known by their names"

PROVIDERS: Final[dict[str, Provider]] = {
    "EC2": _full(
        "no prices, and machine types as they were when libcloud 3.9 was made", "the driver `ec2`, which has more"
    ),
    "GCE": _full("a create waits for Google's operation, no prices"),
    "OPENSTACK": _full("no boot from volume, no server groups", "the driver `openstack`, which has more"),
    "DIGITAL_OCEAN": _full("no choice of the VPC"),
    "LINODE": _full("no VPC and no firewall; prices are those of the default region"),
    "CLOUDSCALE": _full("no prices"),
    "VULTR": _limited(f"{_BY_NAME}; prices are told by the month"),
    "CLOUDSTACK": _limited(f"{_BY_NAME}; user data of 2 KiB at most, since it goes into a URL; no prices"),
    "IKOULA": _limited(f"{_BY_NAME}; user data of 2 KiB at most, since it goes into a URL; no prices"),
    "RACKSPACE": _limited("no zones and no prices"),
    "BRIGHTBOX": _limited(f"{_BY_NAME}; shapes are not told: give template.capacity; no prices"),
    "EUCALYPTUS": _limited("user data of 5 KiB at most, no prices"),
    "OUTSCALE_SAS": _limited("user data of 5 KiB at most; shapes are not told: give template.capacity; no prices"),
    "OUTSCALE_INC": _limited("user data of 5 KiB at most; shapes are not told: give template.capacity; no prices"),
    "OUTSCALE": _limited(
        "it takes no tags in the call that creates: ours are known by the token of that call, which is their name; "
        "shapes are not told: give template.capacity; no prices"
    ),
    "AZURE_ARM": _limited(
        "the public Azure only, no public addresses; a machine that was stopped is shown as running; no prices"
    ),
    "CLOUDSIGMA": _limited(
        "a create waits until a drive is cloned; the ten machine types that libcloud names; no prices"
    ),
    "KUBEVIRT": _limited(
        "a token is the only login; one namespace; addresses are not told; user data of 256 KiB at most; no prices"
    ),
    "ALIYUN_ECS": _not("libcloud drops user data and tags there without a word", _HTTP),
    "SCALEWAY": _not("libcloud speaks to addresses that the vendor has left, and has no user data", _HTTP),
    "UPCLOUD": _not(f"{_NO_USER_DATA}; it also leaves storage behind", _HTTP),
    "KAMATERA": _not(_NO_USER_DATA, _HTTP),
    "GRIDSCALE": _not(f"{_NO_USER_DATA}; it also leaves storage and addresses behind", _HTTP),
    "OVH": _not(_NO_USER_DATA, "the driver `openstack`: OVH's machines are OpenStack's"),
    "VSPHERE": _not(_NO_USER_DATA, "the driver `vsphere`"),
    "LIBVIRT": _not("libcloud cannot create machines there", "the driver `libvirt`"),
    "ONAPP": _not(_NO_USER_DATA, _HTTP),
    "ABIQUO": _not(_NO_USER_DATA, _HTTP),
    "RIMUHOSTING": _not(_NO_USER_DATA, _HTTP),
    "VPSNET": _not(f"{_NO_USER_DATA}; errors are not told", _HTTP),
    "GIG_G8": _not("nothing in its list tells whose a machine is", _HTTP),
    "OPENNEBULA": _not("libcloud loses the machine's name on the way", _HTTP),
    "VCLOUD": _not("libcloud speaks vCloud 5.5 and older only, without user data", "the driver `vsphere`"),
    "VCL": _not("it lends machines by the hour and takes neither user data nor names", _HTTP),
    "EQUINIXMETAL": _not(f"{_GONE}, on 30 June 2026"),
    "EXOSCALE": _not("the vendor has withdrawn the API that libcloud speaks", _HTTP),
    "AURORACOMPUTE": _not(_GONE),
    "KTUCLOUD": _not(_NO_USER_DATA, _HTTP),
    "GANDI": _not(_NO_USER_DATA, _HTTP),
    "MAXIHOST": _not(f"{_NO_USER_DATA}; the service is Latitude.sh now, at another address", _HTTP),
    "AZURE": _not("it is Azure's classic platform, which was retired"),
    "DIMENSIONDATA": _not(_LEGACY),
    "NTTA": _not(_LEGACY),
    "INTERNETSOLUTIONS": _not(_LEGACY),
    "NTTCIS": _not(f"{_LEGACY}; its list has only the last page"),
    "RACKSPACE_FIRST_GEN": _not(_GONE, "RACKSPACE"),
    "TERREMARK": _not(_GONE),
    "NIMBUS": _not(_GONE),
    "DUMMY": _not("it is a toy that gives ids away again", "the driver `simulated`"),
}


def provider_of(name: str) -> Provider:
    """A cloud that is served; raises InvalidArgumentError with the reason when it is not."""
    served = [key for key, one in PROVIDERS.items() if one.served is not Served.NOT]
    found = PROVIDERS.get(name)
    if found is None:
        near = nearest(name.upper().replace("-", "_"), PROVIDERS)
        hint = f"did you mean {near}?" if near else f"there is: {', '.join(served)}"
        raise InvalidArgumentError(f"provider: libcloud 3.9 has no cloud {name!r}; {hint}")
    if found.served is Served.NOT:
        instead = f". Use {found.instead}" if found.instead.startswith(("the driver", "RACK", "OUT")) else ""
        instead = instead or (f". If you need it, {found.instead}" if found.instead else "")
        raise InvalidArgumentError(f"provider: {name} is not served: {found.why}{instead}")
    return found
